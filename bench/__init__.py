"""Benchmarks: programs, apart from the test run."""
