"""SQL92 over message properties, as RocketMQ has it: grammar, meaning, compiled form, bloom filter."""
