"""Checks whether a crawl was polite, from its output files alone.

In the order in which data flows:

1. `records` reads the WARC files and the JSON lines of an output folder: which request was sent when, and which
   response came back.
2. `robots_timeline` determines which robots.txt was in force at an origin at a given time.
3. `signatures` checks the signatures of requests, if the crawl has signed them.
4. `check` compares each request with the delays, rates and robots.txt rules that applied to it, and reports the
   breaches.

The package reads only the files, neither Redis nor the counters of the crawl, so that an error of the crawl cannot hide
itself. Other rooms import: `check`, `records`.
"""
