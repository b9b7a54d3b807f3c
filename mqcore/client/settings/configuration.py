"""Where a client's settings come from when the program does not give them: environment, URL, file, in this order.

Arguments in the program win over all three. The environment has ``MQCORE_CLIENT_<FIELD>``, ``MQCORE_PRODUCER_<FIELD>``,
``MQCORE_CONSUMER_<FIELD>`` and ``MQCORE_PULL_CONSUMER_<FIELD>``, and names that RocketMQ's users know. A URL looks like
``rmq://key:secret@host:9876;host2:9876?call_timeout_s=5&producer.retries=3``. A file is TOML with the tables
``[client]``, ``[producer]``, ``[consumer]``, ``[pull_consumer]``. Unknown names are errors that name their source and
the nearest name.
"""

from __future__ import annotations

import difflib
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from mqcore.client.errors import NoNameServerError
from mqcore.client.settings.addresses import parse_addresses
from mqcore.client.settings.checked import Checked, SettingsT, changed
from mqcore.client.settings.classes import NAME_SERVER_VARIABLES, ClientSettings, ConsumerSettings, ProducerSettings
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.errors import ConfigError

SCHEME = "rmq"
PREFIX = "MQCORE_"
MISSPELT_FROM = 0.93
"""How like one of our variables another one must be to be taken for a misspelt one: a letter or two."""

URL_VARIABLE = "MQCORE_URL"
FILE_VARIABLE = "MQCORE_CONFIG"
KEY_VARIABLES = {
    "access_key": ("ROCKETMQ_ACCESS_KEY",),
    "secret_key": ("ROCKETMQ_SECRET_KEY",),
}
"""Other names of environment variables, by field of ClientSettings."""
NAME_SERVERS = "name_servers"
NO_NAME_SERVER = "no name server address: give one as host:port, or set NAMESRV_ADDR"
TRUE = frozenset({"true", "1", "yes", "on"})
FALSE = frozenset({"false", "0", "no", "off"})

SECTIONS: dict[str, type[Checked]] = {
    "client": ClientSettings,
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "pull_consumer": PullConsumerSettings,
}


@dataclass(slots=True)
class Configuration:
    """What was found: name servers, and values of settings by section and field."""

    name_servers: tuple[str, ...] = ()
    values: dict[str, dict[str, object]] = field(default_factory=lambda: {section: {} for section in SECTIONS})

    def settings(self, base: SettingsT, given: SettingsT | None, changes: Mapping[str, object]) -> SettingsT:
        """Return *given*, or *base* with what was found, in both cases with *changes*."""
        if given is not None:
            return changed(given, changes)
        section = next(name for name, cls in SECTIONS.items() if type(base) is cls)
        return changed(base, {**self.values[section], **changes})

    def put(self, section: str, name: str, value: object, source: str) -> None:
        """Note the value of one setting; *source* is for the error message."""
        if section not in SECTIONS:
            raise ConfigError(f"{source}: unknown section {section!r}{nearest(section, SECTIONS)}")
        known = [found.name for found in fields(SECTIONS[section])]  # type: ignore[arg-type]  # they are dataclasses
        if name not in known:
            raise ConfigError(f"{source}: unknown setting {name!r}{nearest(name, known)}")
        try:
            self.values[section][name] = converted(value, SECTIONS[section], name)
        except ValueError as error:
            raise ConfigError(f"{source}: setting {name}: {error}") from None


def configure(
    given: str | Sequence[str] | None = None,
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Find name servers and settings. *given* is what the program says: addresses, or a URL.

    Addresses that the program gives win over everything; a URL yields to the environment. Raises NoNameServerError
    when there is no address anywhere, ConfigError for what cannot stand.
    """
    environment = os.environ if environment is None else environment
    found = Configuration()
    path = file or environment.get(FILE_VARIABLE)
    if path:
        _read_file(found, Path(path))
    addresses = given if given is None or isinstance(given, str) else ";".join(given)
    url = addresses if addresses and is_url(addresses) else environment.get(URL_VARIABLE)
    if url:
        _read_url(found, url)
    _read_environment(found, environment)
    if addresses and not is_url(addresses):
        found.name_servers = parse_addresses(addresses)
    if not found.name_servers:
        raise NoNameServerError(NO_NAME_SERVER)
    return found


def from_environment(environment: Mapping[str, str]) -> Configuration:
    """Return what the environment alone says, its URL included; no addresses where it names none."""
    found = Configuration()
    if environment.get(URL_VARIABLE):
        _read_url(found, environment[URL_VARIABLE])
    _read_environment(found, environment)
    return found


def from_url(url: str) -> Configuration:
    """Return what a URL says."""
    found = Configuration()
    _read_url(found, url)
    return found


def from_file(path: Path | str) -> Configuration:
    """Return what a configuration file says; no addresses where it names none."""
    found = Configuration()
    _read_file(found, Path(path))
    return found


def is_url(text: str) -> bool:
    """Whether *text* is a URL of ours, not a list of addresses (which may begin with http://, as RocketMQ allows)."""
    return text.strip().startswith(f"{SCHEME}:")


def _read_file(found: Configuration, path: Path) -> None:
    import tomllib  # few have a file

    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error
    for section, table in content.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section!r} stands outside of the tables {', '.join(SECTIONS)}")
        for name, value in table.items():
            if section == "client" and name == NAME_SERVERS:
                found.name_servers = parse_addresses(value if isinstance(value, str) else ";".join(value))
            else:
                found.put(section, name, value, str(path))


def _read_url(found: Configuration, url: str) -> None:
    parts = urlsplit(url.strip())
    shown = f"{SCHEME}://{parts.netloc.rpartition('@')[2]}"  # never the secret
    if parts.scheme != SCHEME or not parts.netloc or parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"URL {shown}: wanted {SCHEME}://key:secret@host:9876;host2:9876?setting=value")
    credentials, _, hosts = parts.netloc.rpartition("@")
    found.name_servers = parse_addresses(hosts)
    if credentials:
        access_key, colon, secret_key = credentials.partition(":")
        if not colon:
            raise ConfigError(f"URL {shown}: the access key has no secret key beside it")
        found.put("client", "access_key", unquote(access_key), shown)
        found.put("client", "secret_key", unquote(secret_key), shown)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        section, dot, inner = name.partition(".")
        found.put(*((section, inner) if dot else ("client", name)), value, shown)


def _read_environment(found: Configuration, environment: Mapping[str, str]) -> None:
    addresses = next((environment[name] for name in NAME_SERVER_VARIABLES if environment.get(name)), None)
    if addresses:
        found.name_servers = parse_addresses(addresses)
    for name, variables in KEY_VARIABLES.items():
        for variable in variables:
            if environment.get(variable):
                found.put("client", name, environment[variable], f"environment variable {variable}")
    for section in SECTIONS:
        prefix = f"{PREFIX}{section.upper()}_"
        for variable, value in environment.items():
            if variable.startswith(prefix):
                found.put(section, variable.removeprefix(prefix).lower(), value, f"environment variable {variable}")
    _check_misspelt(environment)


def _check_misspelt(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable that is almost one of ours, such as MQCORE_PRODUCR_RETRIES.

    What merely begins like ours may be somebody else's: Kubernetes puts in MQCORE_SERVICE_HOST for a service mqcore.
    """
    ours = [URL_VARIABLE, FILE_VARIABLE, *NAME_SERVER_VARIABLES]
    for section, cls in SECTIONS.items():
        names = (row.name.upper() for row in fields(cls))  # type: ignore[arg-type]  # they are dataclasses
        ours += (f"{PREFIX}{section.upper()}_{name}" for name in names)
    for variable in environment:
        if variable.startswith(PREFIX) and variable not in ours:
            near = difflib.get_close_matches(variable, ours, n=1, cutoff=MISSPELT_FROM)
            if near:
                raise ConfigError(f"environment variable {variable}: did you mean {near[0]!r}?")


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """Return the end of a sentence that says which known name was perhaps meant."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


def converted(value: object, cls: type[Checked], name: str) -> object:
    """Return *value* as the field *name* of *cls* has it; ValueError when it cannot be.

    Text becomes what the field's type asks for; a list, or text with commas, becomes a tuple or a set of numbers.
    """
    hint = typing.get_type_hints(cls)[name]
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    wanted = [choice for choice in choices if choice is not type(None)]
    collection = next((choice for choice in wanted if typing.get_origin(choice) in (tuple, frozenset)), None)
    if collection is not None:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list):
            raise ValueError(f"got {value!r}, wanted numbers separated by commas")
        made = [_number(str(part).strip(), int) for part in parts]
        return tuple(made) if typing.get_origin(collection) is tuple else frozenset(made)
    if not isinstance(value, str):
        return value
    for choice, convert in _CONVERSIONS.items():
        if choice in wanted:
            return convert(value)
    if any(choice is str or choice is Path or _is_enum(choice) for choice in wanted):
        return value
    raise ValueError("can be set in the program only")


def _is_enum(choice: object) -> bool:
    return isinstance(choice, type) and issubclass(choice, StrEnum)


def _boolean(text: str) -> bool:
    if text.lower() in TRUE | FALSE:
        return text.lower() in TRUE
    raise ValueError(f"got {text!r}, wanted true or false")


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"got {text!r}, wanted {'a number' if kind is float else 'a whole number'}") from None


def _moment(text: str) -> datetime | float:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _number(text, float)


_CONVERSIONS: dict[type, typing.Callable[[str], object]] = {
    datetime: _moment,
    bool: _boolean,
    int: lambda text: _number(text, int),
    float: lambda text: _number(text, float),
}
