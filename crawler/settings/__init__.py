"""Every setting of a crawl, and the values that follow from the settings.

In the order in which data flows:

1. `crawl_settings` declares each setting of a crawl once: its meaning, unit, default, and what happens when it is raised or
   lowered.
2. `loading` puts the tables together, adds the settings of one replica, and loads all of them from the settings file, the
   environment and the command line. An unknown or malformed key raises `UserError`.
3. `policies` turns settings into the values that other rooms work with, such as the scope and the delays. `check`
   raises an error for settings that no replica could use.
4. `local` decides which settings a replica takes from Redis only if its own machine allows them.
5. `reference` describes each setting, for `crawler init`, `crawler config` and the documentation.

`app`, `observe` and `cli` import this room. The rooms below never see the settings as a whole: they receive the values
that `policies` returns.
"""
