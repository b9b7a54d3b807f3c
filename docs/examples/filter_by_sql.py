"""A consumer that chooses by an SQL92 expression over properties. Apache's broker needs enablePropertyFilter=true."""

import sys

import mqcore

WANTED = mqcore.Sql("TAGS IN ('red', 'green') AND price BETWEEN 0 AND 3")


def main(name_server: str = "127.0.0.1:9876", count: str = "10") -> None:
    colors = ("red", "green", "blue")
    with mqcore.Client(name_server) as mq:
        with mq.producer("catalogue") as producer:
            for price in range(int(count)):
                properties = {"price": str(price)}
                producer.send(mqcore.Message("Bargains", b"{}", tag=colors[price % len(colors)], properties=properties))
        with mq.consumer("hunters", {"Bargains": WANTED}, from_where="earliest") as consumer:
            for number, message in enumerate(consumer, start=1):
                print(f"got: {message.tag} for {message.properties['price']}")
                if number == 3:  # for 0, 1 and 3
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
