"""Defaults that depend on the machine, on the environment or on other settings. Nothing here runs on import."""

from __future__ import annotations

from pathlib import Path

from mqcore.bloom import BloomFilter
from mqcore.config.table import Computed, Context, Program

WILDCARD_ADDRESSES = ("0.0.0.0", "::")


def _host_name(_: Context) -> str:
    import socket  # only a broker without a name needs it, and workers import this module

    return socket.gethostname() or "DEFAULT_BROKER"


def _advertised_address(context: Context) -> str:
    bound = str(context.known["bindAddress"])
    if bound not in WILDCARD_ADDRESSES:
        return bound  # nobody could reach any other address
    if context.program is not Program.BROKER:
        return ""
    from mqcore.local_address import local_address  # imports psutil, which takes longer than the rest of a start

    return local_address()


def _store_root(_: Context) -> str:
    return str(Path.home() / "store")


def _commit_log(context: Context) -> str:
    return str(Path(str(context.known["storePathRootDir"])) / "commitlog")


def _in_namesrv_home(name: str) -> Computed:
    # Several brokers of one machine must not share the tables of the name servers inside them.
    def path(context: Context) -> str:
        if context.program is Program.NAMESRV:
            return str(Path.home() / "namesrv" / name)
        return str(Path(str(context.known["storePathRootDir"])) / "config" / "namesrv" / name)

    return Computed(f"~/namesrv/{name}; inside a broker: <storePathRootDir>/config/namesrv/{name}", path)


def _listen_port(context: Context) -> int:
    return 9876 if context.program is Program.NAMESRV else 10911


def _ha_listen_port(context: Context) -> int:
    port = int(context.known["listenPort"])
    return port + 1 if port else 0


def _bitmap_bits(context: Context) -> int:
    known = context.known
    return BloomFilter.sized(
        int(known["maxErrorRateOfBloomFilter"]), int(known["expectConsumerNumUseFilter"])
    ).bit_count


def _hot_bytes(_: Context) -> int:
    from mqcore.machine import memory_bytes

    return memory_bytes() // 8


def _black_list(context: Context) -> str:
    broker = context.program is Program.BROKER
    return "configBlackList;brokerConfigPath" if broker else "configBlackList;configStorePath;kvConfigPath"


host_name = Computed("host name", _host_name)
advertised_address = Computed(
    "bindAddress, or the first usable local address when that is a wildcard", _advertised_address
)
hot_bytes = Computed("an eighth of the memory", _hot_bytes)
store_root = Computed("~/store", _store_root)
commit_log = Computed("<storePathRootDir>/commitlog", _commit_log)
kv_config_path = _in_namesrv_home("kvConfig.json")
config_store_path = _in_namesrv_home("namesrv.properties")
listen_port = Computed("10911; name server: 9876", _listen_port)
bitmap_bits = Computed("112; follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter", _bitmap_bits)
ha_listen_port = Computed("listenPort + 1", _ha_listen_port)
black_list = Computed(
    "configBlackList;brokerConfigPath; name server: configBlackList;configStorePath;kvConfigPath", _black_list
)
