"""Shapes of personal data, which projects choose: e-mail addresses, phone numbers, cards, IBANs and Chinese identity numbers.

Digits alone prove nothing, so each number must have a valid check digit. The checks before the search (`quick`) look at the
classes of characters only, because most texts have no such number.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from .rules import Shape


def _classes(**members: bytes) -> bytes:
    """Return a table for bytes.translate that turns the members of each class into its name, and hyphens into spaces."""
    table = bytearray(46 for _char in range(256))
    table[ord(" ")] = table[ord("-")] = ord(" ")
    for name, chars in members.items():
        for char in chars:
            table[char] = ord(name)
    return bytes(table)


_IN_A_WORD: Final = b"._" + bytes(range(65, 91)) + bytes(range(97, 123))
"""Characters that no number follows, because the rest of a fraction is no number."""
# After a translation each pattern begins with a literal, which `re` skips to quickly.
_CARD_DIGITS: Final = _classes(C=b"23456", d=b"01789", w=_IN_A_WORD)
_CARD: Final = re.compile(rb"C(?<![Cdw]C)[Cd]{3}(?:[Cd]{9}| [Cd]{4} [Cd]{4} [Cd]{4}| [Cd]{6} [Cd]{5})")
_MOBILE_DIGITS: Final = _classes(i=b"1", n=b"3456789", d=b"02", w=_IN_A_WORD)
_MOBILE: Final = re.compile(rb"in(?<![indw]in)[ind](?: ?[ind]{4}){2}(?![ind])")
_LETTERS_AND_DIGITS: Final = _classes(d=b"0123456789", A=b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_IBAN: Final = re.compile(rb"AAdd ?[Ad]{4}")
_LONG_NUMBER: Final = b"d" * 17
_MAIL: Final = re.compile(rb"@[\w\x80-\xff-]+\.[\w\x80-\xff]")
_INTERNATIONAL: Final = re.compile(rb"\+\(?[1-9](?:[ ()./-]{0,2}[0-9]){6}")
_AREA_CODE: Final = re.compile(rb"\([0-9]{3}\) ?[0-9]{3}[ .-]")


def luhn_is_valid(text: str) -> bool:
    """Return whether the last digit is the check digit of the others by the algorithm of Luhn (ISO/IEC 7812-1, annex B)."""
    digits = [int(char) for char in text if char.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    # Zeros alone are a valid number, too, and no card.
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def iban_is_valid(text: str) -> bool:
    """Return whether the check digits of an IBAN are right (ISO 13616-1, by ISO/IEC 7064 MOD 97-10)."""
    plain = text.replace(" ", "")
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def chinese_id_is_valid(text: str) -> bool:
    """Return whether the check character of a citizen's number is right, and its day exists (GB 11643-1999, by ISO/IEC 7064
    MOD 11-2)."""
    try:
        date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    except ValueError:
        return False
    total = sum(int(digit) * 2 ** (17 - position) for position, digit in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def _phone_is_valid(text: str) -> bool:
    # E.164 allows 15 digits; no country has fewer than seven with its code.
    return 7 <= sum(map(str.isdigit, text)) <= 15


def _has_phone(texts: bytes) -> bool:
    return (
        _INTERNATIONAL.search(texts) is not None
        or _AREA_CODE.search(texts) is not None
        or _MOBILE.search(texts.translate(_MOBILE_DIGITS)) is not None
    )


PRESETS: Final[dict[str, tuple[Shape, ...]]] = {
    "email": (
        Shape(
            "email",
            re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])"),
            "ada@example.com",
            quick=lambda texts: b"@" in texts and _MAIL.search(texts),
        ),
    ),
    "phone": (
        Shape(
            "phone",
            re.compile(
                r"(?<![\w+])\+\(?[1-9](?:[ ()./-]{0,2}\d){6,14}(?!\d)"
                r"|(?<![\w(])\(\d{3}\) ?\d{3}[ .-]\d{4}(?!\d)"
                r"|(?<![\w.+-])1[3-9]\d(?:[ -]?\d{4}){2}(?![\w.-]?\d)",
                re.ASCII,
            ),
            "+49 30 901820",
            accept=_phone_is_valid,
            quick=_has_phone,
        ),
    ),
    "card": (
        Shape(
            "card",
            re.compile(
                r"(?<![\w.-])[2-6]\d{3}(?:([ -])\d{4}\1\d{4}\1\d{4}|([ -])\d{6}\2\d{5}|\d{9,15})(?!\w|[.-]\d)", re.ASCII
            ),
            "4111 1111 1111 1111",
            accept=luhn_is_valid,
            quick=lambda texts: _CARD.search(texts.translate(_CARD_DIGITS)),
        ),
    ),
    "iban": (
        Shape(
            "iban",
            # After the bank, groups have a digit, so that words behind the number are none.
            re.compile(
                r"(?<!\w)[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}"
                r"| [A-Z0-9]{4}(?: (?=[A-Z]{0,3}\d)[A-Z0-9]{4}){1,7}(?: (?=[A-Z]{0,2}\d)[A-Z0-9]{1,3})?)(?!\w)",
                re.ASCII,
            ),
            "DE89 3704 0044 0532 0130 00",
            accept=iban_is_valid,
            quick=lambda texts: _IBAN.search(texts.translate(_LETTERS_AND_DIGITS)),
        ),
    ),
    "chinese_id": (
        Shape(
            "chinese_id",
            re.compile(r"(?<![A-Za-z0-9])[1-8]\d{5}(?:18|19|20)\d{2}[01]\d[0-3]\d{4}[\dXx](?![A-Za-z0-9])", re.ASCII),
            "11010519491231002X",
            accept=chinese_id_is_valid,
            quick=lambda texts: _LONG_NUMBER in texts.translate(_LETTERS_AND_DIGITS),
        ),
    ),
}
"""Shapes by name, as a masking rule names them."""
