"""Decides what a crawl fetches, when it visits a page again, and what data it extracts. Nothing here does I/O.

In the order in which data flows:

1. `seeds` parses the URLs from which a crawl starts.
2. `scope` turns the links of a page into entries for the frontier: it drops links that were pushed recently, that do not
   belong to the crawl, or of which a site can generate an unlimited number, and gives the others a priority. With
   `scope.kind = "seeds"`, the default, it leaves links to other domains to the frontier (`frontier/lua/push.lua`), which
   knows the domains of the seeds.
3. With `[recrawl]`, `next_visit` judges what a visit has found (a change, a 304, a 404), and applies the limits of the
   rule to the interval until the next one, which `freshness` computes from what is known of the page's changes.
4. `actions` recognises links that do something, such as log out, and `shapes` learns from fetched pages which URLs bring
   nothing new.
5. `extract_rules` says what data is extracted from which pages, and which types the fields of items have. `page_steps`
   says what browsers do with pages.
"""
