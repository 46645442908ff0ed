"""Turns bytes into links and facts. All modules are pure, except those that run a subprocess.

In the order in which data flows:

1. `document` receives the body of a response and calls the other modules, or decides that the document may take too long
   to be read in the event loop. `content_coding` decompresses it, within limits of bytes and work.
2. `sitemaps` reads a sitemap. Any other document goes to `html`.
3. `html` finds the character encoding (`encoding`) and the base URL (`<base>`), finds the tags that matter (`tags`) and
   their `attributes`, obeys the page's instructions to crawlers (`robots_meta`), and returns links and facts. `xhtml`
   rewrites XHTML as HTML first.
4. `tree` parses a whole document into a tree, where `tags` cannot judge the markup and to extract text.
5. `extraction` finds items in a page by the rules of the settings: `json_ld` finds values in its JSON-LD, and
   `field_values` converts them. `text_fingerprint` makes a fingerprint of the main text, by which two
   visits of a page are compared. `content` extracts text and structured data for the page's row, and `simhash` makes the
   fingerprint by which nearly equal texts are found.
6. `page_usage` collects what the owner says about the use of a page, for AI training for example.
7. A document that may take too long is read in a separate process (`offload`), in the order of `fair_queue`:
   `subprocess_client` starts that process and talks to it, and `subprocess_main` is the program that it runs.
   `text_budget` limits how long it is busy with the texts of a domain.

Other rooms import: `content`, `content_coding`, `document`, `encoding`, `extraction`, `html`, `json_ld`, `offload`,
`page_usage`, `simhash`, `sitemaps`, `tags`, `text_fingerprint`, `tree`.
"""
