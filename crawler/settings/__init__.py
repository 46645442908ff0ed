"""Every setting of a crawl, and the values that follow from the settings.

In the order in which data flows:

1. `tables` declares each setting: meaning, unit, default, and what happens when it is raised or lowered. What several keys
   say together, such as the User-Agent header, is a property of their table.
2. `load` reads the settings file, the environment and the options, converts each value, and reports everything that is
   unknown or malformed in one error.
3. `policies` turns settings into the values that other packages work with, such as the scope and the delays. Its `check`
   raises an error for settings that no replica could use.
4. `guarded` decides which settings a replica takes from Redis only if its own machine allows them.
5. `reference` describes each setting, for `crawler init`, `crawler config` and the documentation.

The packages below never see the settings as a whole: they receive the values that `policies` returns.
"""
