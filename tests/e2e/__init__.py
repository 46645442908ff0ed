"""Whole processes end to end: the commands as a user runs them, a real Valkey, and the synthetic web as the referee."""
