"""A synthetic web: any number of domains and pages, computed from a seed, served by one process under many
names.

In the order in which things happen: `Features` says what the web is made of; `World` computes what each URL
answers (`sites` -> `numbered`, `services`, `hostile` -> `Resource`); `expect` walks the world's own links
as a perfect crawl would; `SimWebServer` turns resources into bytes (`pages`, `answers`) and writes a
`RequestLog`; `judge` holds this log against what was expected, and is the referee of the crawler's promises
to the sites.
"""

from crawler.simweb.expected import Expected, Policy, Visit, expect
from crawler.simweb.features import Charset, Coding, Features, Kind
from crawler.simweb.hazards import Hazard
from crawler.simweb.log import Record, RequestLog, read_log
from crawler.simweb.referee import RefereeLimits, RefereeReport, judge
from crawler.simweb.robots import RobotsKind
from crawler.simweb.server import SimWebServer
from crawler.simweb.world import World

__all__ = [
    "Charset",
    "Coding",
    "Expected",
    "Features",
    "Hazard",
    "Kind",
    "Policy",
    "Record",
    "RefereeLimits",
    "RefereeReport",
    "RequestLog",
    "RobotsKind",
    "SimWebServer",
    "Visit",
    "World",
    "expect",
    "judge",
    "read_log",
]
