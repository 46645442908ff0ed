"""The command line: the commands, their output, and actions that combine several other packages.

`main` is the entry point. Its table says which module has which command, and its errors say in one line what is wrong with
a command line. It turns errors into exit codes. A replica of a supervisor starts at `run`, without any options.
`options` has the options that commands share, and the access to the crawl that they select.

A module has a family of commands: `crawl` (and `try`), `seeds`, `run`, `demo`, `plan`; `watch` (`status`, `top`, `domains`,
`shards`, `types`), `why`; `control` (`pause` to `dead`); `export` (and `extract`), `audit`, `repair` (and `finish`),
`forget`, `reshard`; `settings` (`init`, `config`), `doctor`, `identity`. `output_folders` remembers where crawls write.

`screens` turns what was read into tables and live displays. `text` prints all of it, as text for people or as JSON for
programs, and makes text from strangers harmless.

Other packages import: `main`, `run`.
"""
