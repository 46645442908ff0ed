"""Turns bytes into links and facts. All modules are pure, except `child` and `turns`.

In the order in which data flows:

1. `document` receives the body of a response and calls the other modules, or decides that the document may take too long
   to be read in the event loop. `coding` decompresses it, within limits of bytes and work.
2. `sitemaps` reads a sitemap. Any other document goes to `html`.
3. `html` finds the character encoding (`encoding`) and the base URL (`<base>`), finds the tags that matter (`tags`) and
   their attributes (`markup`, which also rewrites XHTML as HTML), obeys the page's instructions to crawlers, and returns
   links and facts. `requisites` finds what the page embeds, and `needs_scripts` tells whether it needs a browser.
4. `tree` parses a whole document into a tree, where `tags` cannot judge the markup and to extract text.
5. `extraction` finds items in a page by the rules of the settings, and `values` converts them to the types of their
   fields. `text` extracts text (`main_text`) and data (`structured`) for the page's row, and makes the fingerprints by
   which pages, and two visits of a page, are compared. `forms` is for handlers.
6. `child` reads a document that may take too long in a separate process, in turns of the domains (`turns`).
"""
