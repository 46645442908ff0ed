"""Capacity planning: what a crawl of a given size needs. Nothing here does I/O.

`constants` lists what was measured, and a few assumptions, with the source of each figure. `arithmetic` turns them and a
workload into the use of CPU, memory, network and disk; `report` into the lines of a plan with their formulas and the
limiting factor. `calibration` replaces the constants by those of a crawl (`crawler.observe.usage` reads them).
`numbers` reads and writes numbers as people do. Other rooms import: `arithmetic`, `calibration`, `constants`, `numbers`,
`report`.
"""
