"""Decides what a crawl fetches, when it visits a page again, and what data it extracts. Nothing here does I/O.

In the order in which data flows:

1. `seeds` parses the URLs from which a crawl starts.
2. `recent_urls` remembers links that were pushed recently. They need no further check.
3. `scope` decides whether a link belongs to the crawl; with `scope.kind = "seeds"`, the default, the frontier decides
   about links to other domains (see 4). `traps` rejects URLs of which a site can generate an unlimited number.
4. `link_filter` applies `recent_urls`, `scope` and `traps` to the links of a page, gives each link a priority,
   and returns entries for the frontier. With `scope.kind = "seeds"`, it leaves links to other domains to the frontier
   (`frontier/lua/push.lua`), which knows the domains of the seeds.
5. With `[recrawl]`, `next_visit` judges what a visit has found (a change, a 304, a 404), and applies the limits of the
   rule to the interval until the next one, which `freshness` computes from what is known of the page's changes.
   `visit_state_text` writes what is remembered of the visits, and `copy_age` says for how long the copy of a page was up
   to date. `next_visit_in_words` explains to people how that time was chosen.
6. `extract_rules` says what data is extracted from which pages, and `item_schema` which types the fields of items have.

Other rooms import: `copy_age`, `extract_rules`, `item_schema`, `link_filter`, `next_visit`, `next_visit_in_words`,
`recent_urls`, `scope`, `seeds`, `traps`.
"""
