"""Formats of strings that the grammar knows, as regular expressions over the value."""

_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE = (
    rf"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-9]))"
)
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)?"
_TIME = rf"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,9}})?{_ZONE}"
_SECONDS = r"[0-9]{1,9}(?:\.[0-9]{1,9})?S"
_CLOCK = rf"T(?:[0-9]{{1,9}}H(?:[0-9]{{1,9}}M)?(?:{_SECONDS})?|[0-9]{{1,9}}M(?:{_SECONDS})?|{_SECONDS})"
_DAYS = r"[0-9]{1,9}D"
_CALENDAR = rf"(?:[0-9]{{1,9}}Y(?:[0-9]{{1,9}}M)?(?:{_DAYS})?|[0-9]{{1,9}}M(?:{_DAYS})?|{_DAYS})"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"

FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": f"^-?P(?:{_CALENDAR}(?:{_CLOCK})?|{_CLOCK})$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv4": rf"^{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}$",
    "hostname": f"^{_HOST}$",
    "email": rf"^[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_HOST}$",
    "uri": r"^[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$",
}
"""The 29th of February is a date in any year, as leap years would make the expressions long; a zone is at most 14 hours
from UTC, as in XML Schema."""
