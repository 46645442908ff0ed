"""Redmine with the database that its package brings, in a copy: `with redmine(folder) as site:`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.apps.site import PAGES, Site, numbered, prose, run, serving

ROOT = Path("/usr/share/redmine")
DATABASE = Path("/var/lib/dbconfig-common/sqlite3/redmine/instances/default/redmine_default")

_FILL = """
ActiveJob::Base.queue_adapter = :test  # mails are written by a thread, which would lock the database
project = Project.create!(name: "Council", identifier: "council", is_public: true)
project.enabled_module_names = %w(issue_tracking time_tracking news wiki boards calendar gantt)
project.trackers = Tracker.all
clerk = User.find_by_login("admin")
activity = TimeEntryActivity.create!(name: "Reading", active: true)
Role.anonymous.add_permission! :view_time_entries, :view_issues, :view_news, :view_wiki_pages, :view_calendar
File.readlines(ARGV[0]).each_with_index do |text, index|
  number = index + 1
  issue = Issue.create!(project: project, tracker: Tracker.first, author: clerk, subject: "Report #{number}",
    description: text, priority: IssuePriority.first, status: IssueStatus.first, start_date: Date.today - number)
  TimeEntry.create!(project: project, issue: issue, user: clerk, author: clerk, hours: 1 + number % 3,
    activity: activity, spent_on: Date.today - number)
end
"""


@contextlib.contextmanager
def redmine(folder: Path) -> Iterator[Site]:
    database = folder / "redmine.db"
    shutil.copyfile(DATABASE, database)
    (folder / "fill.rb").write_text(_FILL)
    (folder / "texts").write_text("\n".join(prose(number) for number in range(1, PAGES + 1)))
    environment = {"RAILS_ENV": "production", "DATABASE_URL": f"sqlite3:{database}", "HOME": str(folder)}
    run(ROOT / "bin/rails", "runner", folder / "fill.rb", folder / "texts", folder=ROOT, **environment)
    words: list[str | Path] = ["puma", "--config", "-", "--bind", "tcp://127.0.0.1:PORT", "--threads", "1:4"]
    words += ["--environment", "production", "--dir", ROOT, ROOT / "config.ru"]
    with serving(words, folder, numbered("{}"), r"/issues/(\d+)", **environment) as site:
        yield site
