"""Checks whether a crawl was polite, from its output files alone.

`records` reads the WARC files and the JSON lines of an output folder: which request was sent when, which response came
back, and whether the signatures of requests hold. `check` determines which robots.txt was in force when, compares each
request with the delays, rates and rules that applied to it, and reports the breaches.

The package reads only the files, neither Redis nor the counters of the crawl, so that an error of the crawl cannot hide
itself.
"""
