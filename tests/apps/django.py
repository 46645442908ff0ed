"""Applications that are parts of Django projects, with the smallest project that shows each: a shop, a calendar and the
archive of a mailing list."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.apps.site import PAGES, PEERS, Site, prose, run, serving

_SETTINGS = """
from pathlib import Path
BASE = Path(__file__).parent
SECRET_KEY, DEBUG, ALLOWED_HOSTS, SITE_ID, ROOT_URLCONF = "x", False, ["*"], 1, "urls"
TIME_ZONE, USE_TZ, LANGUAGE_CODE = "UTC", True, "en"
STATIC_URL, MEDIA_ROOT, MEDIA_URL = "/static/", str(BASE / "media"), "/media/"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE / "db", "OPTIONS": {"timeout": 30}}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
INSTALLED_APPS = ["django.contrib." + name for name in (
    "admin", "auth", "contenttypes", "sessions", "messages", "staticfiles", "sites", "flatpages", "humanize")]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = [
    "django.template.context_processors." + name for name in ("debug", "i18n", "media", "static", "tz", "request")]
PROCESSORS += ["django.contrib.auth.context_processors.auth", "django.contrib.messages.context_processors.messages"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "DIRS": [BASE / "templates"],
              "OPTIONS": {"context_processors": PROCESSORS}}]
HAYSTACK_CONNECTIONS = {
    "default": {"ENGINE": "haystack.backends.whoosh_backend.WhooshEngine", "PATH": str(BASE / "index")}}
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.RealtimeSignalProcessor"
"""

_BEGIN = """
import os, sys
from pathlib import Path
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
sys.path.insert(0, ".")
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0, run_syncdb=True)
texts = sys.stdin.read().splitlines()
names = []
"""


@contextlib.contextmanager
def _project(folder: Path, settings: str, urls: str, fill: str, named: str) -> Iterator[Site]:
    """Run a project. `fill` gets `texts`, and leaves the names of its pages in `names`."""
    (folder / "media").mkdir()
    (folder / "settings.py").write_text(_SETTINGS + settings)
    (folder / "urls.py").write_text(urls)
    texts = "\n".join(prose(number) for number in range(1, PAGES + 1))
    end = "\nPath('names').write_text('\\n'.join(names))\n"
    run(PEERS / "python", "-W", "ignore", "-c", _BEGIN + fill + end, folder=folder, stdin=texts)
    names = (folder / "names").read_text().split()
    words: list[str | Path] = [
        PEERS / "python",
        "-W",
        "ignore",
        "-m",
        "django",
        "runserver",
        "--noreload",
        "--insecure",
    ]
    words += ["--settings", "settings", "--pythonpath", folder, "127.0.0.1:PORT"]
    with serving(words, folder, frozenset(names), named) as site:
        yield site


_SHOP_SETTINGS = """
from oscar.defaults import *
INSTALLED_APPS += ["oscar.config.Shop"] + ["oscar.apps." + name for name in (
    "analytics.apps.AnalyticsConfig checkout.apps.CheckoutConfig address.apps.AddressConfig shipping.apps.ShippingConfig "
    "catalogue.apps.CatalogueConfig catalogue.reviews.apps.CatalogueReviewsConfig communication.apps.CommunicationConfig "
    "partner.apps.PartnerConfig basket.apps.BasketConfig payment.apps.PaymentConfig offer.apps.OfferConfig "
    "order.apps.OrderConfig customer.apps.CustomerConfig search.apps.SearchConfig voucher.apps.VoucherConfig "
    "wishlists.apps.WishlistsConfig dashboard.apps.DashboardConfig dashboard.reports.apps.ReportsDashboardConfig "
    "dashboard.users.apps.UsersDashboardConfig dashboard.orders.apps.OrdersDashboardConfig "
    "dashboard.catalogue.apps.CatalogueDashboardConfig dashboard.offers.apps.OffersDashboardConfig "
    "dashboard.partners.apps.PartnersDashboardConfig dashboard.pages.apps.PagesDashboardConfig "
    "dashboard.ranges.apps.RangesDashboardConfig dashboard.reviews.apps.ReviewsDashboardConfig "
    "dashboard.vouchers.apps.VouchersDashboardConfig dashboard.communications.apps.CommunicationsDashboardConfig "
    "dashboard.shipping.apps.ShippingDashboardConfig").split()]
INSTALLED_APPS += ["widget_tweaks", "haystack", "treebeard", "django_tables2"]
OSCAR_THUMBNAILER = "thumbnails.Thumbnailer"
MIDDLEWARE += ["oscar.apps.basket.middleware.BasketMiddleware"]
PROCESSORS += ["oscar.apps.search.context_processors.search_form", "oscar.apps.checkout.context_processors.checkout",
               "oscar.apps.communication.notifications.context_processors.notifications",
               "oscar.core.context_processors.metadata"]
AUTHENTICATION_BACKENDS = ["oscar.apps.customer.auth_backends.EmailBackend"]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "facets.Engine", "PATH": str(BASE / "index")}}
"""

_THUMBNAILS = """
class Thumbnailer:
    def generate_thumbnail(self, source, **options): return source
    def delete_thumbnails(self, source): pass
"""

_FACETS = '''"""Counts facets of the products as Solr does, which the search of Whoosh does not."""
from collections import Counter
from haystack.backends.whoosh_backend import WhooshEngine, WhooshSearchBackend

class Backend(WhooshSearchBackend):
    def search(self, query_string, **options):
        wanted = options.pop("facets", None) or {}
        queries = options.pop("query_facets", None) or []
        found = super().search(query_string, **options)
        everything = super().search(query_string, **{**options, "start_offset": 0, "end_offset": 1000, "models": None})
        rows = [result.get_stored_fields() for result in everything["results"]]
        found["facets"] = {"dates": {}, "queries": {f"{field}_exact:{query}": 3 for field, query in queries}, "fields": {
            field: Counter(row[field] for row in rows if row.get(field) is not None).most_common() for field in wanted}}
        return found

class Engine(WhooshEngine):
    backend = Backend
'''

_SHOP_URLS = """
from django.apps import apps
from django.urls import include, path
urlpatterns = [path("i18n/", include("django.conf.urls.i18n")), path("", include(apps.get_app_config("oscar").urls[0]))]
"""

_SHOP_FILL = """
from decimal import Decimal
from oscar.core.loading import get_model
from oscar.apps.catalogue.categories import create_from_breadcrumbs
Product, Class, Record, Partner, Link = (get_model(*name.split(".")) for name in (
    "catalogue.Product", "catalogue.ProductClass", "partner.StockRecord", "partner.Partner", "catalogue.ProductCategory"))
classes = [Class.objects.create(name=name, track_stock=False) for name in ("Book", "Map", "Print")]
partner = Partner.objects.create(name="Council")
for number, text in enumerate(texts, 1):
    product = Product.objects.create(title=f"Report {number}", slug=f"report{number}", product_class=classes[number % 3],
                                     description=text, upc=str(number), rating=number % 5)
    Record.objects.create(product=product, partner=partner, partner_sku=str(number), price=Decimal(number * 3))
    names.append(product.slug)
    Link.objects.create(product=product, category=create_from_breadcrumbs(f"Shelf {number % 4}"))
call_command("rebuild_index", interactive=False, verbosity=0)
"""


@contextlib.contextmanager
def shop(folder: Path) -> Iterator[Site]:
    """django-oscar. Whoosh counts no facets, so its search engine is replaced by one that does."""
    (folder / "facets.py").write_text(_FACETS)
    (folder / "thumbnails.py").write_text(_THUMBNAILS)
    named = r"/catalogue/(report\d+)_\d+/"
    with _project(folder, _SHOP_SETTINGS, _SHOP_URLS, _SHOP_FILL, named) as site:
        yield site


_CALENDAR_URLS = """
from django.urls import include, path
urlpatterns = [path("accounts/", include("django.contrib.auth.urls")), path("", include("schedule.urls"))]
"""

_CALENDAR_FILL = """
import datetime
from schedule.models import Calendar, Event
calendar = Calendar.objects.create(name="Council", slug="council")
now = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
for number, text in enumerate(texts, 1):
    begin = now + datetime.timedelta(days=number - 15)
    Event.objects.create(title=f"Report {number}", description=text, start=begin, end=begin + datetime.timedelta(hours=1),
                         calendar=calendar)
names = ["year", "tri_month", "month", "week", "daily"]
"""


@contextlib.contextmanager
def calendar(folder: Path) -> Iterator[Site]:
    """django-scheduler, whose calendar has a page for each day, week, month and year, in any year. Its content is the views
    of today, which show all events."""
    named = r"/calendar/(\w+)/council/"
    settings = 'INSTALLED_APPS += ["schedule"]\n'
    with _project(folder, settings, _CALENDAR_URLS, _CALENDAR_FILL, named) as site:
        yield site


_LIST_SETTINGS = """
import sys
INSTALLED_APPS = ["hyperkitty", "django_mailman3", *INSTALLED_APPS, "rest_framework", "django_gravatar", "compressor",
                  "haystack", "django_extensions", "django_q", "allauth", "allauth.account", "allauth.socialaccount"]
MIDDLEWARE += ["django.middleware.locale.LocaleMiddleware", "allauth.account.middleware.AccountMiddleware"]
PROCESSORS += ["django_mailman3.context_processors.common", "hyperkitty.context_processors.common"]
MAILMAN_REST_API_URL, MAILMAN_REST_API_USER, MAILMAN_REST_API_PASS = "http://127.0.0.1:9", "a", "a"
MAILMAN_ARCHIVER_KEY, MAILMAN_ARCHIVER_FROM = "a", ("127.0.0.1",)
LOGIN_URL, LOGIN_REDIRECT_URL, LOGOUT_URL = "account_login", "hk_root", "account_logout"
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.AppDirectoriesFinder", "compressor.finders.CompressorFinder"]
STATIC_ROOT, COMPRESS_ENABLED, COMPRESS_PRECOMPILERS = str(BASE / "static"), False, ()
Q_CLUSTER = {"retry": 60, "timeout": 30, "orm": "default", "sync": True}
FILTER_VHOST, GRAVATAR_URL = False, "http://127.0.0.1:9/"
"""

_LIST_URLS = """
from django.urls import include, path
urlpatterns = [path("", include("hyperkitty.urls")), path("", include("django_mailman3.urls")),
               path("accounts/", include("allauth.urls"))]
"""

_LIST_FILL = """
import mailbox
from email.message import EmailMessage
box = mailbox.mbox("mails")
for number, text in enumerate(texts, 1):
    for reply in range(2):
        mail = EmailMessage()
        mail["From"] = f"Clerk {reply} <clerk{reply}@example.org>"
        mail["To"], mail["Subject"] = "council@example.org", f"{'Re: ' * reply}Report {number}"
        mail["Date"] = f"{1 + number % 28} {('Sep', 'Oct', 'Nov')[number % 3]} 2026 10:{10 + reply}:00 +0000"
        mail["Message-ID"] = f"<{number}.{reply}@example.org>"
        if reply:
            mail["In-Reply-To"] = f"<{number}.0@example.org>"
        mail.set_content(text if not reply else f"Thanks for report {number}. {text[::-1]}")
        box.add(mail)
box.flush()
call_command("hyperkitty_import", "mails", list_address="council@example.org", verbosity=0, no_sync_mailman=True,
             since="1970-01-01")
from hyperkitty.models import Email, Thread
assert Thread.objects.count() == len(texts), Thread.objects.count()
names = [thread.thread_id for thread in Thread.objects.all()]
"""


@contextlib.contextmanager
def mailing_list(folder: Path) -> Iterator[Site]:
    """HyperKitty. Content are the threads, whose names are hashes of their first Message-ID."""
    named = r"/list/council@example\.org/thread/(\w{32})/"
    with _project(folder, _LIST_SETTINGS, _LIST_URLS, _LIST_FILL, named) as site:
        yield site
