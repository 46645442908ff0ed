"""The command line: the commands, their output, and actions that combine several other packages.

How a command runs, in the order in which data flows:

1. `main` is the entry point. It runs the command, and `exits` prints an error that the user can fix as one line.
   `command_errors` words those of a command line that cannot be parsed. A replica of a supervisor starts at `supervised`
   instead, which parses no options.
2. `command_registry` lists which module has which command, in the groups of the help. `value_names` and `completion` say
   what an option takes, to people and to the shell. A module is imported when one of its commands is called, because
   importing all of them takes half a second.
3. These modules hold the commands: `crawl` (and `seed`, `run`, `demo`), `trial` (`crawler try`), `watch` (`status`, `top`,
   `domains`, `shards`), `control` (`pause`, `resume`, `stop`, `delay`, `retry`, `dead`), `block` (and `unblock`),
   `refresh` (with `refresh_reasons`), `configure` (`init`, `config`), `doctor`, `why`, `field_types` (`crawler types`),
   `audit`, `finish`, `forget`, `repair`, `reshard`, `export` (and `extract`, with `export_options`, `export_items` and
   `export_changes`), `identity` and `plan`. They share their options (`shared_options`) and the access to a crawl
   (`crawl_access`). `output_folders` remembers where crawls write, and `unknown_names` notes what a crawl does not know,
   such as a mistyped domain.
4. `seed_lists` reads seeds. `seed_and_run` queues them, and runs a whole crawl on one machine. `demo` runs one on a
   toy web (`demo_web`). `readiness_checks` examines the machine for `doctor`, with `node_checks` for the nodes of a Redis
   Cluster. Each returns a `check_finding`.
5. `render` turns what was read into tables (`tables`). `crawl_display` shows a crawl while it runs and summarizes it at
   its end. `quit_key` reads the key that ends a live screen.
6. `terminal` prints all of it, as tables for people or JSON for programs, and makes text from strangers harmless.

Other rooms import: `main`, `supervised`.
"""
