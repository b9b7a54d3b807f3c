"""Asking and answering over a topic: one question, and several at once, with asyncio."""

import asyncio
import sys

from mqcore import aio

TIMEOUT_S = 60.0


async def ask(name_server: str) -> None:
    async with aio.Client(name_server) as mq, mq.producer("answerers") as answering, aio.Client(name_server) as other:

        async def answer(message: aio.ReceivedMessage) -> None:
            print(f"asked: {message.body.decode()}")
            await answering.reply(message, b"%d EUR" % (2 * int(message.body)))

        async with (
            mq.consumer("price_desk", "Questions", handler=answer, from_where="earliest"),
            other.producer("askers") as producer,
        ):
            reply = await producer.request(aio.Message("Questions", b"21"), timeout_s=TIMEOUT_S)
            print(f"answer: {reply.body.decode()}")
            questions = [aio.Message("Questions", b"%d" % number) for number in (1, 2, 3)]
            replies = await asyncio.gather(*(producer.request(question, timeout_s=TIMEOUT_S) for question in questions))
            print("answers:", ", ".join(reply.body.decode() for reply in replies))


def main(name_server: str = "127.0.0.1:9876") -> None:
    asyncio.run(ask(name_server))


if __name__ == "__main__":
    main(*sys.argv[1:])
