"""Capacity planning: what a crawl of a given size needs. Nothing here does I/O.

`arithmetic` has the measured constants, a few assumptions, and the formulas for the use of CPU, memory, network and disk.
`report` writes the lines of a plan with their formulas and the limiting factor.
"""
