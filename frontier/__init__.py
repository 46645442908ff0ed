"""The frontier: what is to be fetched, and who may fetch it. Usable without the crawler.

In the order in which data flows: URLs get their one canonical form and their domain (`urls`, `domains`). The peer loop
(`peers`) tells each replica the roster of an epoch, and the ring (`ring`) which shards are whose in it; the table of owners
(`owners`) is what the ring remembers; `health` keeps what each replica reports. `queue` pushes, leases, settles and
releases, by the scripts in `lua/`, over the seam to Redis (`store`, `scripts`, `keys`); `entries` is a URL as Redis keeps
it. `crawls` creates and opens crawls, `budget` and `duties` share out what all replicas may do together, `reservations`
lets one request pass into a domain that somebody else holds. `counters`, `survey`, `lookup` and `dead_letters` read what
the transitions have written down. `control` carries an operator's commands to all replicas.
"""
