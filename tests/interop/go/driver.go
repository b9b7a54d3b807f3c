// rocketmq-client-go as a command: `driver produce|consume|pull|request|answer --name value ...`, JSON lines on standard output, and
// reports in the form that src/interop/Report.java of the Java driver describes. A consumer obeys the lines count and
// stop on standard input.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const pullMax = 32

type event map[string]any

func show(what event) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

type options map[string]string

func given(arguments []string) options {
	values := options{}
	for at := 0; at+1 < len(arguments); at += 2 {
		values[strings.TrimPrefix(arguments[at], "--")] = arguments[at+1]
	}
	return values
}

// Empty without the option access-key, and then nothing is signed.
func (o options) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: o["access-key"], SecretKey: o["secret-key"]}
}

func (o options) text(name, otherwise string) string {
	if value, found := o[name]; found {
		return value
	}
	return otherwise
}

func (o options) number(name string, otherwise int) int {
	value, err := strconv.Atoi(o.text(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("--%s: got %q, wanted a whole number", name, o[name]))
	}
	return value
}

type report struct {
	mutex sync.Mutex
	file  *os.File
}

func newReport(o options) *report {
	file, err := os.Create(o["report"])
	if err != nil {
		panic(err)
	}
	return &report{file: file}
}

func (r *report) line(fields ...any) {
	texts := make([]string, len(fields))
	for at, field := range fields {
		texts[at] = strings.Join(strings.Fields(fmt.Sprint(field)), " ")
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, err := r.file.WriteString(strings.Join(texts, "\t") + "\n"); err != nil {
		panic(err)
	}
}

func (r *report) received(message *primitive.MessageExt, outcome string) {
	digest := sha1.Sum(message.Body)
	r.line(message.GetKeys(), message.Topic, message.Queue.QueueId, message.QueueOffset, hex.EncodeToString(digest[:]),
		len(message.Body), message.ReconsumeTimes, message.Queue.BrokerName, message.GetTags(), outcome, message.MsgId)
}

// The non-empty lines of the corpus as messages: line n has the key Gn, and the tags take turns.
func messages(o options) []*primitive.Message {
	text, err := os.ReadFile(o["corpus"])
	if err != nil {
		panic(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	tags := strings.Split(o.text("tags", "*"), ",")
	var found []*primitive.Message
	for number, line := range lines[:min(len(lines), o.number("count", len(lines)))] {
		message := primitive.NewMessage(o["topic"], line)
		message.WithTag(tags[number%len(tags)]).WithKeys([]string{"G" + strconv.Itoa(number)})
		for _, property := range strings.Split(o.text("properties", ""), ",") {
			if name, value, isOne := strings.Cut(property, "="); isOne {
				message.WithProperty(name, value)
			}
		}
		found = append(found, message)
	}
	return found
}

type outcomes struct {
	report   *report
	accepted atomic.Int64
}

func (out *outcomes) add(message *primitive.Message, result *primitive.SendResult, err error) {
	if err != nil {
		out.report.line(message.GetKeys(), err, "", "", "", -1, -1)
		return
	}
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprintf("status %d", result.Status)
	} else {
		out.accepted.Add(1)
	}
	out.report.line(message.GetKeys(), status, result.MsgID, result.OffsetMsgID, result.MessageQueue.BrokerName,
		result.MessageQueue.QueueId, result.QueueOffset)
}

func produce(o options) error {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{o["name-server"]}),
		producer.WithGroupName(o.text("group", "INTEROP_GO_PRODUCER")),
		producer.WithSendMsgTimeout(time.Minute),
		producer.WithCredentials(o.credentials()),
	)
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	all := messages(o)
	out := &outcomes{report: newReport(o)}
	begin := time.Now()
	switch mode := o.text("mode", "sync"); mode {
	case "sync":
		for _, message := range all {
			result, err := sender.SendSync(context.Background(), message)
			out.add(message, result, err)
		}
	case "async":
		sendAsync(sender, all, o.number("in-flight", 64), out)
	case "batch":
		sendBatches(sender, all, o.number("batch-size", 32), out)
	default:
		return fmt.Errorf("unknown mode %s", mode)
	}
	seconds := time.Since(begin).Seconds()
	accepted := out.accepted.Load()
	show(event{"event": "produced", "messages": len(all), "accepted": accepted, "failures": int64(len(all)) - accepted,
		"seconds": seconds})
	return sender.Shutdown()
}

func sendAsync(sender rocketmq.Producer, all []*primitive.Message, inFlight int, out *outcomes) {
	room := make(chan struct{}, inFlight)
	for _, message := range all {
		room <- struct{}{}
		err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			out.add(message, result, err)
			<-room
		}, message)
		if err != nil {
			out.add(message, nil, err)
			<-room
		}
	}
	for range inFlight {
		room <- struct{}{}
	}
}

// A batch has one answer: its offset is the first message's, and the client leaves the ids empty.
func sendBatches(sender rocketmq.Producer, all []*primitive.Message, size int, out *outcomes) {
	for from := 0; from < len(all); from += size {
		batch := all[from:min(from+size, len(all))]
		result, err := sender.SendSync(context.Background(), batch...)
		for at, message := range batch {
			if err == nil && at > 0 {
				result.QueueOffset++
			}
			out.add(message, result, err)
		}
	}
}

var beginnings = map[string]consumer.ConsumeFromWhere{
	"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
	"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
	"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
}

func consume(o options) error {
	orderly := o["orderly"] == "true"
	chosen := []consumer.Option{
		consumer.WithNameServer([]string{o["name-server"]}),
		consumer.WithGroupName(o["group"]),
		consumer.WithConsumeFromWhere(beginnings[o.text("from", "CONSUME_FROM_FIRST_OFFSET")]),
		consumer.WithConsumerOrder(orderly),
		consumer.WithCredentials(o.credentials()),
	}
	if o["timestamp"] != "" {
		chosen = append(chosen, consumer.WithConsumeTimestamp(o["timestamp"]))
	}
	if o["broadcasting"] == "true" {
		// Members with one name would share the file of their offsets, and the second begin where the first has got to.
		name := consumer.WithInstance(strconv.Itoa(os.Getpid()))
		chosen = append(chosen, consumer.WithConsumerModel(consumer.BroadCasting), name)
	}
	receiver, err := rocketmq.NewPushConsumer(chosen...)
	if err != nil {
		return err
	}
	out := newReport(o)
	refuse := strings.Split(o["refuse"], ",")
	var refused sync.Map
	var deliveries atomic.Int64
	handle := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range batch {
			outcome := consumer.ConsumeSuccess
			for _, key := range refuse {
				if _, before := refused.Load(key); key != "" && key == message.GetKeys() && !before {
					refused.Store(key, true)
					outcome = consumer.ConsumeRetryLater
					if orderly {
						outcome = consumer.SuspendCurrentQueueAMoment
					}
				}
			}
			out.received(message, map[consumer.ConsumeResult]string{
				consumer.ConsumeSuccess: "SUCCESS", consumer.ConsumeRetryLater: "LATER",
				consumer.SuspendCurrentQueueAMoment: "SUSPEND",
			}[outcome])
			deliveries.Add(1)
			if outcome != consumer.ConsumeSuccess {
				return outcome, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("tags", "*")}
	if o["sql"] != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: o["sql"]}
	}
	if err = receiver.Subscribe(o["topic"], selector, handle); err != nil {
		return err
	}
	if err = receiver.Start(); err != nil {
		return err
	}
	show(event{"event": "ready"})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() && orders.Text() != "stop" {
		if orders.Text() != "count" {
			return fmt.Errorf("unknown order %s", orders.Text())
		}
		show(event{"event": "count", "deliveries": deliveries.Load()})
	}
	if err = receiver.Shutdown(); err != nil {
		return err
	}
	show(event{"event": "stopped", "deliveries": deliveries.Load()})
	return nil
}

// Pulls the queues of the topic one after the other, each from 0 to its end.
func pull(o options) error {
	receiver, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{o["name-server"]}), consumer.WithGroupName(o["group"]),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("tags", "*")}
	if err = receiver.Subscribe(o["topic"], selector); err != nil {
		return err
	}
	if err = receiver.Start(); err != nil {
		return err
	}
	out := newReport(o)
	for id := range o.number("queues", 4) {
		queue := &primitive.MessageQueue{Topic: o["topic"], BrokerName: o["broker"], QueueId: id}
		for offset := int64(0); ; {
			result, err := receiver.PullFrom(context.Background(), queue, offset, pullMax)
			if err != nil {
				return err
			}
			for _, message := range result.GetMessageExts() {
				out.received(message, "PULLED")
			}
			if offset = result.NextBeginOffset; offset >= result.MaxOffset {
				break
			}
		}
	}
	show(event{"event": "pulled"})
	return receiver.Shutdown()
}

// Asks with each line of the corpus, one after the other.
func request(o options) error {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{o["name-server"]}), producer.WithGroupName("INTEROP_GO_ASKER"),
		producer.WithSendMsgTimeout(time.Minute),
	)
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	timeout := time.Duration(o.number("timeout-ms", 10_000)) * time.Millisecond
	for _, question := range messages(o) {
		reply, err := sender.Request(context.Background(), time.Second, question)
		// It may ask before the broker has heard from it, and then knows nobody by its name.
		for begin := time.Now(); err != nil && time.Since(begin) < timeout; {
			reply, err = sender.Request(context.Background(), time.Second, question)
		}
		if err != nil {
			return err
		}
		show(event{"event": "reply", "key": question.GetKeys(), "body": string(reply.Body)})
	}
	return sender.Shutdown()
}

// Answers questions with "re: " and their bodies until its input ends.
func answer(o options) error {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{o["name-server"]}), producer.WithGroupName("INTEROP_GO_ANSWERER"),
		producer.WithSendMsgTimeout(time.Minute),
	)
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{o["name-server"]}),
		consumer.WithGroupName(o["group"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	handle := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, question := range batch {
			reply, err := consumer.CreateReplyMessage(question, nil)
			if err == nil {
				reply.Body = append([]byte("re: "), question.Body...) // what is given above is read as properties
				_, err = sender.SendSync(context.Background(), reply)
			}
			if err != nil {
				show(event{"event": "unanswered", "key": question.GetKeys(), "reason": err.Error()})
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err = receiver.Subscribe(o["topic"], consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	if err = receiver.Start(); err != nil {
		return err
	}
	show(event{"event": "ready"})
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
	}
	if err = receiver.Shutdown(); err != nil {
		return err
	}
	return sender.Shutdown()
}

// transactions decides by the number of a message, modulo four: 0 commits, 1 rolls back, 2 says nothing and commits when it
// is asked, 3 says nothing and rolls back. Who answers twice commits twice, so it answers once.
type transactions struct {
	waiting sync.Map
	checks  atomic.Int64
	open    atomic.Int64
}

func plan(key string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(key, "G"))
	if err != nil {
		panic(err)
	}
	return number % 4
}

func (t *transactions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch plan(message.GetKeys()) {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	t.waiting.Store(message.GetKeys(), true)
	t.open.Add(1)
	return primitive.UnknowState
}

func (t *transactions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	t.checks.Add(1)
	if _, is := t.waiting.LoadAndDelete(message.GetKeys()); !is {
		return primitive.UnknowState
	}
	t.open.Add(-1)
	if plan(message.GetKeys()) == 2 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// transact ends when every silent transaction has been asked about, or at the deadline, and stays until its input ends: the
// last answers are under way by then.
func transact(o options) error {
	listener := &transactions{}
	sender, err := rocketmq.NewTransactionProducer(listener,
		producer.WithNameServer([]string{o["name-server"]}),
		producer.WithGroupName(o.text("group", "INTEROP_GO_TRANSACTIONS")),
		producer.WithSendMsgTimeout(time.Minute),
	)
	if err != nil {
		return err
	}
	if err = sender.Start(); err != nil {
		return err
	}
	all := messages(o)
	out := &outcomes{report: newReport(o)}
	for _, message := range all {
		result, err := sender.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return err
		}
		out.add(message, result.SendResult, nil)
	}
	for end := time.Now().Add(time.Minute); listener.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	show(event{"event": "transacted", "messages": len(all), "checks": listener.checks.Load(),
		"unasked": listener.open.Load()})
	bufio.NewReader(os.Stdin).ReadString(0)
	return sender.Shutdown()
}

func main() {
	commands := map[string]func(options) error{
		"produce": produce, "consume": consume, "pull": pull, "request": request, "answer": answer,
		"transact": transact,
	}
	if err := commands[os.Args[1]](given(os.Args[2:])); err != nil {
		show(event{"event": "failed", "reason": err.Error()})
		os.Exit(1)
	}
}
