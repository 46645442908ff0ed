"""A synthetic web for tests: any number of domains and pages, computed from a seed and served by one process.

In data-flow order:

1. `features` defines the contents of the web and its faulty answers (`Kind`), and `hazards` the kinds of attack.
2. `world` computes the response of each URL, a `resource`. It has all domains (`sites`), each a `site` with its `robots`.
   `numbered` answers for the numbered pages, which may have `articles`, `services` for what is not a page, and `hostile`
   for the attacks. `chance` draws their numbers.
3. `expected` follows the links of the world as a perfect crawl would.
4. `server` turns resources into bytes and writes a `log` of the requests: `pages` writes HTML with its `links`, `answers`
   turns a resource into the steps of its response, `attacks` has those of the hostile domains, `codings` compresses, and
   `wire` has the parts of HTTP/1.1. `changing` has pages that change at known rates, with their validators.
5. `log_judge` compares the log with the expectation. It checks that the crawler was complete and polite.
   `freshness_judge` says how fresh the copies of changing pages were, and could have been.
"""

from crawler.simweb.articles import Product, Story, article
from crawler.simweb.expected import Expected, Policy, Visit, expect
from crawler.simweb.features import Charset, Coding, Features, Kind
from crawler.simweb.hazards import Hazard
from crawler.simweb.log import Record, RequestLog, read_log
from crawler.simweb.log_judge import JudgeLimits, JudgeReport, judge
from crawler.simweb.robots import RobotsKind
from crawler.simweb.server import SimWebServer
from crawler.simweb.world import World

__all__ = [
    "Charset",
    "Coding",
    "Expected",
    "Features",
    "Hazard",
    "JudgeLimits",
    "JudgeReport",
    "Kind",
    "Policy",
    "Product",
    "Record",
    "RequestLog",
    "RobotsKind",
    "SimWebServer",
    "Story",
    "Visit",
    "World",
    "article",
    "expect",
    "judge",
    "read_log",
]
