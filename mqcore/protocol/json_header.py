"""The JSON form of a command's header (serialize type 0).

Writing gives the bytes that RocketMQ's Java code gives: members in alphabetical order, null members left out. Reading
accepts what its decoder accepts: numbers and booleans inside extFields, an unknown or numeric language, missing
members, bare or single-quoted names, blanks around the object.
Source: RocketMQ remoting/protocol/RemotingCommand.java, RemotingSerializable.java.
"""

from __future__ import annotations

from typing import Any, Final

from mqcore.codes import LanguageCode
from mqcore.errors import HeaderError, ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.header_fields import HeaderFields, check_int32

_LANGUAGE_MEMBERS: Final = {
    int(language): f'"language":"{language.name}",' for language in LanguageCode if language is not LanguageCode.UNKNOWN
}
_LANGUAGES: Final = {language.name: int(language) for language in LanguageCode}


def encode_header(fields: HeaderFields) -> bytes:
    """Return the header's JSON text, UTF-8. Members of extFields keep the order of the dict."""
    code, language, version, opaque, flag, remark, ext_fields = fields
    quote = fastjson.quote
    ext_text = ""
    if ext_fields is not None:
        members = ",".join([f"{quote(name)}:{quote(value)}" for name, value in ext_fields.items() if value is not None])
        ext_text = f'"extFields":{{{members}}},'
    language_text = _LANGUAGE_MEMBERS.get(language, "")
    remark_text = "" if remark is None else f'"remark":{quote(remark)},'
    text = (
        f'{{"code":{code:d},{ext_text}"flag":{flag:d},{language_text}"opaque":{opaque:d},{remark_text}'
        f'"serializeTypeCurrentRPC":"JSON","version":{version:d}}}'
    )
    return text.encode("utf-8", "replace")


def decode_header(data: Buffer) -> HeaderFields:
    """Read a header's JSON text. A missing number is 0, a missing language JAVA, an unknown one UNKNOWN.

    Raises HeaderError naming the member, or the whole header when it is not a JSON object.
    """
    try:
        members = fastjson.loads(data)
    except ProtocolError as error:
        raise HeaderError("header", str(error), "a JSON object") from error
    if not isinstance(members, dict):
        raise HeaderError("header", type(members).__name__, "a JSON object")
    remark = members.get("remark")
    return HeaderFields(
        code=_number(members, "code"),
        language=_language(members.get("language", LanguageCode.JAVA)),
        version=_number(members, "version"),
        opaque=_number(members, "opaque"),
        flag=_number(members, "flag"),
        remark=None if remark is None else text_of(remark),
        ext_fields=_ext_fields(members.get("extFields")),
    )


def text_of(value: Any) -> str:
    """Return *value* as the text that fastjson puts into a String: numbers and booleans spelled, objects as JSON."""
    if isinstance(value, str):
        return value
    return fastjson.dumps(value).decode()


def _number(members: dict[Any, Any], name: str) -> int:
    value = members.get(name, 0)
    if type(value) is int:
        return check_int32(name, value)
    if value is None or value == "":
        return 0
    try:
        return check_int32(name, int(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise HeaderError(name, repr(value), "an integer") from error


def _language(value: Any) -> int:
    if isinstance(value, str):
        return _LANGUAGES.get(value, LanguageCode.UNKNOWN)
    if isinstance(value, int):
        return LanguageCode(value)
    return LanguageCode.UNKNOWN


def _ext_fields(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise HeaderError("extFields", type(value).__name__, "a JSON object")
    return {
        name if isinstance(name, str) else text_of(dict(name)): text if type(text) is str else text_of(text)
        for name, text in value.items()
        if text is not None
    }
