"""End-to-end tests with whole processes: the commands as users run them, a real Valkey, and the synthetic web."""
