"""Every setting of a crawl, and the values that follow from the settings.

In the order in which data flows:

1. `crawl_tables`, `archive_table`, `extract_table` and `handlers_table` declare each setting of a crawl, and
   `replica_table`, `identity_table` and `requests_table` those of one replica: meaning, unit, default, and what happens
   when it is raised or lowered. `table` is their base, and knows how a key was declared. What several keys say together,
   such as the User-Agent header, is a property of their table.
2. `sources` reads the settings file, the environment and the options, and remembers where each value is from.
3. `loading` puts the tables together, and loads all of them from the sources. `conversion` checks and converts each value.
   `problems` describes everything that is unknown or malformed, in one error.
4. `policies` turns settings into the values that other rooms work with, such as the scope and the delays. Its `check`
   raises an error for settings that no replica could use.
5. `guarded` decides which settings a replica takes from Redis only if its own machine allows them.
6. `contact` checks whether webmasters can reach the operator of a crawl.
7. `reference` describes each setting, for `crawler init`, `crawler config` and the documentation.

The rooms below never see the settings as a whole: they receive the values that `policies` returns. Other rooms import:
`contact`, `crawl_tables`, `guarded`, `identity_table`, `loading`, `policies`, `problems`, `reference`, `replica_table`,
`requests_table`, `sources`, `table`.
"""
