"""Capacity planning."""
