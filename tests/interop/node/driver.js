'use strict';

// ali-ons as a command: `node driver.js produce|consume --name value ...`, JSON lines on standard output, and reports in the form that
// src/interop/Report.java of the Java driver describes. A consumer obeys the lines count and stop on standard input.

const crypto = require('crypto');
const fs = require('fs');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const silent = { debug() {}, info() {}, warn() {}, error(...parts) { console.error(...parts); } };

function print(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function options() {
  const values = {};
  for (let at = 3; at + 1 < process.argv.length; at += 2) {
    values[process.argv[at].slice(2)] = process.argv[at + 1];
  }
  return values;
}

function clientOptions(given) {
  // Name servers come from nameSrv, so nothing is asked over HTTP; the constructor only insists on having a client for it.
  // A send that is given up after 3 s, the default, is tried again, and may be stored twice.
  return { nameSrv: given['name-server'], httpclient: {}, logger: silent, connectTimeout: 30000, sendMsgTimeout: 60000, retryTimesWhenSendFailed: 0 };
}

function reportLine(report, fields) {
  fs.writeSync(report, `${fields.map(field => String(field === undefined || field === null ? '' : field).replace(/\s/g, ' ')).join('\t')}\n`);
}

// The non-empty lines of a file as buffers: text decoding would change bytes that are not UTF-8.
function lines(path) {
  const bytes = fs.readFileSync(path);
  const found = [];
  for (let start = 0, end = bytes.indexOf(10); end >= 0; start = end + 1, end = bytes.indexOf(10, start)) {
    found.push(bytes.subarray(start, end));
  }
  return found;
}

async function produce(given) {
  const producer = new Producer({ ...clientOptions(given), producerGroup: given.group || 'INTEROP_NODE_PRODUCER' });
  producer.on('error', failure => console.error(failure));
  await producer.ready();
  const report = fs.openSync(given.report, 'w');
  const tags = (given.tags || '*').split(',');
  const bodies = lines(given.corpus).slice(0, Number(given.count || Infinity));
  let accepted = 0;
  async function send(line) {
    const message = new Message(given.topic, tags[line % tags.length], bodies[line]);
    const key = `${given['key-prefix'] || 'N'}${line}`;
    message.keys = [ key ];
    try {
      const result = await producer.send(message);
      const ok = result.sendStatus === 'SEND_OK' ? 1 : 0;
      accepted += ok;
      reportLine(report, [ key, result.sendStatus, result.msgId, result.offsetMsgId, result.messageQueue.brokerName, result.messageQueue.queueId,
        result.queueOffset ]);
    } catch (failure) {
      reportLine(report, [ key, failure.message, '', '', '', -1, -1 ]);
    }
  }
  const begin = process.hrtime.bigint();
  const inFlight = Number(given['in-flight'] || 32);
  let next = 0;
  async function sendOn() {
    while (next < bodies.length) {
      await send(next++);
    }
  }
  await Promise.all(Array.from({ length: inFlight }, sendOn));
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  fs.closeSync(report);
  print({ event: 'produced', messages: bodies.length, accepted, failures: bodies.length - accepted, seconds });
  await producer.close();
}

async function consume(given) {
  const consumer = new Consumer({
    ...clientOptions(given),
    consumerGroup: given.group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    rebalanceInterval: 1000,
  });
  consumer.on('error', failure => console.error(failure));
  const report = fs.openSync(given.report, 'w');
  const refusals = new Set((given.refuse || '').split(','));
  let deliveries = 0;
  consumer.subscribe(given.topic, given.tags || '*', async message => {
    const refused = refusals.has(message.keys) && message.reconsumeTimes === 0;
    const digest = crypto.createHash('sha1').update(message.body).digest('hex');
    reportLine(report, [ message.keys, message.topic, message.queueId, message.queueOffset, digest, message.body.length, message.reconsumeTimes, '',
      message.tags, refused ? 'ACTION_RETRY' : 'CONSUME_SUCCESS', message.msgId ]);
    deliveries++;
    return refused ? Consumer.ACTION_RETRY : undefined;
  });
  await consumer.ready();
  print({ event: 'ready', client: consumer.clientId });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === 'count') {
      print({ event: 'count', deliveries });
    } else if (line === 'stop') {
      break;
    } else {
      throw new Error(`unknown order ${line}`);
    }
  }
  await consumer.close();
  fs.closeSync(report);
  print({ event: 'stopped', deliveries });
}

const commands = { produce, consume };

commands[process.argv[2]](options()).then(() => process.exit(0), failure => {
  console.error(failure);
  print({ event: 'failed', reason: failure.message });
  process.exit(1);
});
