"""Which schedules a cron can read."""

import pytest

from persist.errors import InvalidValue
from persist.workflows.storage.cron import check_schedule
from tests.cases import each

GOOD = (
    "* * * * *",
    "0 9 * * 1-5",
    "*/5 0-23/2 1,15 jan-jun mon,wed,FRI",
    "30 0 9 * * *",
    "0 0 L * ?",
    "0 0 LW * *",
    "0 0 15W * *",
    "0 0 * * 5L",
    "0 0 * * fri#2",
    "0 0 * * 7",
    "  0   9 * * *  ",
    "@daily",
    "@Hourly",
)
BAD = {
    "": "no cron expression",
    "not a cron": "no cron expression",
    "* * * *": "no cron expression",
    "* * * * * * *": "no cron expression",
    "@never": "no cron expression",
    "60 * * * *": "minute",
    "* 24 * * *": "hour",
    "* * 0 * *": "day of month",
    "* * 32 * *": "day of month",
    "* * * 13 *": "month",
    "* * * foo *": "month",
    "* * * * 8": "day of week",
    "* * * * day": "day of week",
    "*/0 * * * *": "step",
    "*/60 * * * *": "step",
    "*/ * * * *": "step",
    "1-2-3 * * * *": "minute",
    "5-1 * * * *": "ends before",
    "1,,2 * * * *": "minute",
    "-1 * * * *": "minute",
    "\u0661 * * * *": "minute",
    "60 * * * * *": "second",
}


@each("schedule", GOOD)
def test_what_a_cron_reads_is_kept(schedule: str) -> None:
    assert check_schedule("schedule", schedule) == schedule


@each("schedule", BAD)
def test_what_no_cron_reads_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidValue, match=BAD[schedule]) as caught:
        check_schedule("schedule", schedule)
    assert caught.value.path == "schedule"
