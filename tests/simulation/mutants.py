"""Guards of the program, each of which can be taken out of a copy of it; `mutant_gate` says who notices."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


COPIED = ("crawler", "frontier", "politeness", "tests", "docs", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard taken out: in `path`, each old text of `changes` is replaced by the new one, once."""

    name: str
    path: str
    changes: tuple[tuple[str, str], ...]


LUA = "frontier/lua/"
TIME = "frontier/clock.py"
COMMIT = "crawler/worker/commit.py"
ROBOTS = "crawler/worker/robots.py"
LEASES = "crawler/worker/leases.py"


REPEAT = "unsafe = await self._repeat_pushes(group, runs)"
ANSWERS = "group.answers.update(zip(numbers, are_unsettled, strict=True))"
SETTLE = """        settling = SettlingGroup(group, results, sunk.duplicates)
        if not await self._settle(settling):
            await self._settle_later(settling)
            return
"""
SETTLE_FIRST = SETTLE.replace("sunk.duplicates", "frozenset()")
PUSH = "        results = await self._push(group)\n"
WRITE = "        sunk = await self._write(results)\n"


def _without(name: str, path: str, old: str, new: str) -> Mutant:
    return Mutant(name, path, ((old, new),))


LEASED_DUE = "if not redis.call('ZSCORE', base .. 'leases', domain) then"
KEEPS_TOKEN = "  redis.call('HDEL', domain_key, 'token', 'open')\n  redis.call('HSET', domain_key, 'next'"
REST = "math.max(tonumber(wanted_ms), tonumber(known[2] or '0'))"
MARGIN = "end = asked_at + lease_s - min(1.0, lease_s / 20)"
JOURNAL = '                (self.journal, encoded(doubt) if doubt else b""),\n'
LINES = "                (self.pages, lines),\n"
KEEPS_RECORD = "kept[#kept + 1] = string.sub(records, at, next_at - 1)"
GONE = "local gone = remove(unpack(ARGV, at + 4, at + 3 + entries))"

RESHARD = "frontier/reshard.py"

MUTANTS = (
    _without("no-fence", LUA + "fence.lua", "if fence_epoch > epoch or (", "if false and ("),
    _without("settle-without-token", LUA + "settle.lua", "local is_held = known[1] == token", "local is_held = true"),
    _without("release-without-token", LUA + "release.lua", "if known[1] ~= ARGV[3] then", "if false then"),
    _without("owners-forgotten", LUA + "save_owners.lua", "~= ARGV[1]", "~= ''"),
    _without("late-owners", LUA + "save_owners.lua", "redis.call('GET', KEYS[1]) ~= ARGV[1]", "false"),
    _without("late-claims", LUA + "claim.lua", "math.max(open, tonumber(ARGV[1]))", "tonumber(ARGV[1])"),
    Mutant("settle-before-push", COMMIT, ((PUSH, "        results = group.results\n"), (SETTLE, SETTLE + PUSH))),
    Mutant("settle-before-sink", COMMIT, ((SETTLE, ""), (WRITE, SETTLE_FIRST + WRITE))),
    _without(
        "no-rest-after-expiry",
        LUA + "expire_leases.lua",
        "expiry_ms + tonumber(state[2] or default_delay_ms)",
        "expiry_ms",
    ),
    _without("push-makes-leased-due", LUA + "make_due.lua", LEASED_DUE, "if true then"),
    _without("lost-holder-keeps-token", LUA + "expire_leases.lua", KEEPS_TOKEN, KEEPS_TOKEN.partition("\n")[2]),
    _without("settles-twice", LUA + "settle.lua", GONE, GONE.replace("local gone =", "local gone = entries")),
    _without("late-call-shortens-lease", LUA + "settle.lua", "'GT', expiry_ms", "expiry_ms"),
    _without("late-call-shortens-rest", LUA + "settle.lua", REST, "tonumber(wanted_ms)"),
    _without("lost-urls-forgotten", LUA + "expire_leases.lua", "if state[3] then", "if false then"),
    _without("revoked-lease-keeps-token", LUA + "revoke.lua", "  redis.call('HDEL', domain_key, 'token')\n", ""),
    _without(
        "stale-is-unsettled",
        COMMIT,
        ANSWERS,
        "group.answers.update(dict.fromkeys(numbers, True))",
    ),
    _without("dropped-is-remembered", "crawler/scope/scope.py", "self._young.add(marked)", "self._young.add(link.url)"),
    _without("stale-is-settled", COMMIT, ANSWERS, "group.answers.update(dict.fromkeys(numbers, False))"),
    _without(
        "outbox-not-open",
        "frontier/counters.py",
        "[(due + accepted + outboxed, sum",
        "[(due + accepted + 0 * outboxed, sum",
    ),
    _without("outbox-forgets", "crawler/worker/outbox.py", "sent = await self._push(links)", "sent = links"),
    _without("strangers-are-new", "crawler/scope/scope.py", '"known" if may_be_seeds else ', ""),
    _without("lease-end-ignored", LEASES, "return now < self.lease_end", "return True"),
    _without("lease-end-too-late", "crawler/worker/leases.py", MARGIN, "end = asked_at + 1.5 * lease_s"),
    _without(
        "settles-after-lease",
        COMMIT,
        "valid = [leased for leased in part if leased.may_settle(at)]\n            settlements = ",
        "valid = list(part)\n            settlements = ",
    ),
    _without(
        "renews-after-lease",
        COMMIT,
        "valid = [leased for leased in part if leased.holds(at)]\n            replies",
        "valid = list(part)\n            replies",
    ),
    _without("lapses-with-lease", "frontier/budget.py", "AFTER_LEASE_MS = 2_000", "AFTER_LEASE_MS = -3_900"),
    _without(
        "pages-outlive-permits",
        "crawler/worker/leases.py",
        "return end if self._budget is None else",
        "return end if True else",
    ),
    _without("permits-before-the-count", LUA + "reserve_budget.lua", "if counted == 1 then", "if true then"),
    _without(
        "lost-pages-are-free",
        "frontier/budget.py",
        "pages = self._done if is_sure else max(self._done, answer.used)",
        "pages = self._done",
    ),
    _without(
        "hanging-nodes-are-sure",
        "frontier/budget.py",
        "if found != self._found or was_away:",
        "if found != self._found:",
    ),
    _without(
        "taken-back-twice-is-open",
        LUA + "expire_leases.lua",
        "if redis.call('ZADD', queue, 'NX', entries[i + 1], counted) == 0 then count_merged(base .. 'stats') end",
        "redis.call('ZADD', queue, entries[i + 1], counted)",
    ),
    _without("known-pages-are-packed", LUA + "long_queue.lua", "'-inf', NOT_KNOWN)", "'-inf', '+inf')"),
    _without("permits-end-before-a-takeover", "frontier/budget.py", "TAKEOVER_INTERVALS = 3", "TAKEOVER_INTERVALS = 0"),
    _without("late-spend", LUA + "reserve_budget.lua", "if tonumber(ARGV[2]) <= tonumber(call) then", "if false then"),
    _without(
        "holder-loses-permits",
        LUA + "reserve_budget.lua",
        "math.max(keep, math.min(wanted, is_quiet and 0 or share))",
        "math.min(wanted, is_quiet and 0 or share)",
    ),
    _without(
        "idle-is-over",
        "crawler/app/engine.py",
        "if idle and await retry.call(lambda: self.counters.has_ended(self.frontier.visits_by_ms))",
        "if idle",
    ),
    _without(
        "one-reading", "frontier/counters.py", "return await self._totals(shards, visits_by_ms) == first", "return True"
    ),
    _without(
        "clock-ahead", "frontier/clock.py", "Reading(server_ms - after * 1000", "Reading(server_ms - before * 1000"
    ),
    _without(
        "one-push",
        COMMIT,
        REPEAT,
        "unsafe = set[LeasedDomain]()",
    ),
    _without(
        "finished-lease-is-renewed",
        "crawler/worker/lease_manager.py",
        "for leased in [leased for leased in old if self._is_finished(leased)]:",
        "for leased in list[LeasedDomain]():",
    ),
    _without("token-without-clock", LUA + "lease.lua", "math.max(last_token + 1, now_ms)", "last_token + 1"),
    Mutant(
        "records-before-journal",
        "crawler/sinks/volume.py",
        ((JOURNAL, ""), (LINES, LINES + JOURNAL)),
    ),
    _without("steps-are-followed", TIME, "elif self._step_to(known, reading):", "elif False:"),
    _without("each-corrects-a-step", LUA + "correct_time.lua", "if (known[1] or '0') ~= ARGV[1] then", "if false then"),
    _without("newcomers-trust-the-server", TIME, " or claimed > has_claimed", ""),
    _without("answers-are-not-awaited", TIME, " or known.answered < asked.number", ""),
    _without("no-grace", LUA + "lost_writes.lua", "local GRACE_MS = 1000", "local GRACE_MS = 0"),
    _without(
        "no-repeated-writes",
        "crawler/worker/commit.py",
        "while runs := self._frontier.replaced_runs():",
        "while False and (runs := self._frontier.replaced_runs()):",
    ),
    _without("lost-leases-forgotten", LUA + "lost_writes.lua", "> tonumber(from) and", "> tonumber(to) and"),
    _without("repeated-lease-grants-anew", LUA + "lease.lua", "if number <= known.call then", "if false then"),
    _without(
        "late-lease-call-is-answered", LUA + "repeat_lease.lua", "if number < known.call then return reply end", ""
    ),
    _without(
        "packs-what-has-changed",
        LUA + "pack.lua",
        "if redis.sha1hex(table.concat(entries, '\\n')) ~= ARGV[4] then",
        "if false then",
    ),
    _without(
        "unpacks-twice",
        LUA + "unpack.lua",
        "if redis.call('ZREM', blocks, block) == 0 then return {'gone'} end",
        "redis.call('ZREM', blocks, block)",
    ),
    _without("packed-is-empty", LUA + "settle.lua", "if known[3] or redis", "if redis"),
    _without("empty-shard-is-empty", LUA + "lost_data.lua", "redis.call('HGET', stats, 'crawl') ~= crawl", "false"),
    _without("push-into-lost-shard", LUA + "push.lua", "if stats[1] ~= ARGV[1] then", "if false then"),
    _without("lost-shard-is-over", "frontier/counters.py", "if lost and identity:", "if False:"),
    _without("epoch-is-opened-again", LUA + "claim.lua", "if epoch > open then", "if epoch >= open then"),
    _without("rosters-of-old-epochs", LUA + "claim.lua", "elseif open == epoch - 1 then", "else"),
    _without(
        "well-for-ever",
        "politeness/backoff.py",
        'return BackoffState(failures, until_ms, 0, "".join',
        'return BackoffState(failures, until_ms, state.well_since_ms, "".join',
    ),
    _without(
        "replaced-places",
        "crawler/sinks/journal.py",
        "if (group.records_at, group.lines_at) < (last.records_at, last",
        "if (0, 0) <= (last.records_at, last",
    ),
    _without("late-backoff", LUA + "settle.lua", "local is_newest = is_held or not known[1]", "local is_newest = true"),
    _without("full-outbox-settles", COMMIT, "for shard in full.union(missed) for key", "for shard in missed for key"),
    _without("full-outbox-repeats", COMMIT, "for shard in shards if shard not in full]", "for shard in shards]"),
    _without(
        "repeats-without-outbox", COMMIT, "        if not unsafe:\n            return ready\n", "        return ready\n"
    ),
    _without("seen-is-not-compared", RESHARD, "if not max(sources) <= size <= sum(sources):", "if False:"),
    _without("delay-without-robots", ROBOTS, "self.throttle.prolong_delay(leased, saved)", "pass"),
    _without(
        "visits-before-they-are-due", LUA + "known_pages.lua", "if due_s * 1000 <= now_ms and #taken", "if #taken"
    ),
    _without("pages-are-lost", LUA + "known_pages.lua", KEEPS_RECORD, f"if #kept < 16 then {KEEPS_RECORD} end"),
    _without(
        "unchanged-pages-are-lost", LUA + "visits.lua", "if due_s ~= ''", "if due_s ~= '' and found ~= 'unchanged'"
    ),
    _without(
        "equal-intervals", "crawler/scope/next_visit.py", "            if seen.compared:", "            if False:"
    ),
    _without(
        "moved-is-swallowed",
        "crawler/scope/scope.py",
        'if link.mode in ("moved", "again"):',
        'if link.mode == "again":',
    ),
    _without("moved-is-queued-twice", LUA + "push_moved.lua", " and not open[page]", ""),
    _without("repair-forgets-later-visits", LUA + "restore_visits.lua", " and not is_stored(domain, body)", ""),
    _without("moved-is-visited-early", LUA + "push_moved.lua", " and not locate_page(base, domain, page)", ""),
    _without("frozen-keeps-leases", LUA + "freeze_shard.lua", "for i = 1, #leases, 2 do", "for i = 1, 0, 2 do"),
    _without("late-freeze", LUA + "freeze_shard.lua", "if cancelled and tonumber(cancelled) >=", "if false and 1 >="),
    _without("late-thaw", LUA + "identify_shard.lua", "if ARGV[4] ~= '' and tonumber(", "if false and tonumber("),
    _without("late-begin", LUA + "begin_reshard.lua", "if (known[7] or '0') ~= ARGV[5] then", "if false then"),
    _without("late-cancel", LUA + "cancel_reshard.lua", "if claims ~= read then", "if false then"),
    _without("late-switch", LUA + "switch_layout.lua", " or known[5] ~= ARGV[4] then", " then"),
    _without("late-end", LUA + "end_reshard.lua", " or (known[2] or '0') ~= ARGV[2] then", " then"),
    _without(
        "undone-begins-again",
        LUA + "cancel_reshard.lua",
        "redis.call('HINCRBY', KEYS[1], 'reshard_claims', 1) .. ''",
        "claims .. ''",
    ),
    _without("late-report", LUA + "report_reshard.lua", "~= string.match(ARGV[1], '%S+$') then", "== '' then"),
    _without(
        "repaired-shard-is-frozen", "frontier/repair.py", "if claims := self._crawl.reshard_claims:", "if claims := 0:"
    ),
    _without("removes-a-new-layout", RESHARD, "            if has_not_switched:", "            if True:"),
    _without("copies-share-keys", "frontier/keys.py", "1 + last_tokens[-1] % ATTEMPTS", "1 + len(last_tokens)"),
    _without(
        "unsynced-copy",
        RESHARD,
        "            await self._until_synced()\n        except",
        "            pass\n        except",
    ),
    _without(
        "kept-links-count-twice",
        "frontier/shard_contents.py",
        'outboxed = stats.get("delivered", 0) + counted["outbox"]',
        'outboxed = stats.get("outboxed", 0)',
    ),
    _without("copies-if-one-shard-can", "frontier/reshard.py", "range(len(self._old)) for target", "(0,) for target"),
)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """A folder with a copy of the program in which `mutant` is applied, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        _apply(mutant, copy / mutant.path)
        yield copy


def _apply(mutant: Mutant, path: Path) -> None:
    text = path.read_text()
    for old, new in mutant.changes:
        if text.count(old) != 1:
            raise SystemExit(
                f"{mutant.name}: {old!r} is {text.count(old)} times in {mutant.path}; bring the mutant up to date"
            )
        text = text.replace(old, new)
    path.write_text(text)


def output_of(folder: Path, *words: str, limit_s: float = 900.0) -> str:
    """What Python prints with the arguments `words`, in `folder`. A test that does not end in `limit_s` has failed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}  # the copy, wherever the product is installed from
    words = (sys.executable, *words)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(words, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the servers that it has started
        return f"{process.communicate()[0]}\nFAILED to end within {limit_s} s\n"
