"""Fuzzing of everything that reads what strangers send.

`targets` says what is fed and what must hold, `mutate` makes inputs from sound ones, `__main__` runs them by the million
with a limit on time and memory. What it found is kept in `corpus/`, and `test_corpus` feeds it again.
"""
