// River, through its Go library: Insert, InsertManyFast and a client with workers.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const bulk = 1000

type request struct {
	action, url    string
	count, rate    int
	bytes, clients int
	delay          time.Duration
	best, timeline bool
}

// Item is what all queues of the benchmark carry: a number, and padding that does not compress.
type Item struct {
	N   uint64 `json:"n"`
	Pad string `json:"pad,omitempty"`
}

// Kind names the job for River.
func (Item) Kind() string { return "bench" }

type account struct {
	request request
	handled atomic.Uint64
	sum     atomic.Uint64
	first   atomic.Int64
	reached atomic.Int64
	lock    sync.Mutex
	times   [][2]uint64
}

func (a *account) started(n uint64) {
	if a.request.timeline {
		a.lock.Lock()
		a.times = append(a.times, [2]uint64{n, uint64(time.Now().UnixMicro())})
		a.lock.Unlock()
	}
	a.sum.Add(n)
	handled := a.handled.Add(1)
	if handled == 1 {
		a.first.Store(time.Now().UnixMicro())
	}
	if handled == uint64(a.request.count) {
		a.reached.Store(time.Now().UnixMicro())
	}
}

type worker struct {
	river.WorkerDefaults[Item]
	account *account
}

func (w *worker) Work(_ context.Context, job *river.Job[Item]) error {
	w.account.started(job.Args.N)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(name string) int {
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s is missing or invalid; start the adapter through the benchmark\n", name)
		os.Exit(1)
	}
	return value
}

func read() request {
	return request{
		action:   os.Args[1],
		url:      os.Getenv("DATABASE_URL"),
		count:    number("BENCH_COUNT"),
		rate:     max(1, number("BENCH_RATE")),
		bytes:    number("BENCH_BYTES"),
		clients:  max(1, number("BENCH_CLIENTS")),
		delay:    time.Duration(number("BENCH_DELAY_SECONDS")) * time.Second,
		best:     os.Getenv("BENCH_SETTINGS") == "best",
		timeline: os.Getenv("BENCH_TIMELINE") == "1",
	}
}

func run(ctx context.Context) error {
	o := read()
	config, err := pgxpool.ParseConfig(o.url)
	if err != nil {
		return err
	}
	config.MaxConns = int32(o.clients)
	if o.action == "work" {
		config.MaxConns = 20
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := open(ctx, pool); err != nil {
		return err
	}
	switch o.action {
	case "setup":
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err != nil {
			return err
		}
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	case "singles":
		return singles(ctx, o, pool)
	case "bulk":
		return fill(ctx, o, pool)
	case "produce":
		return produce(ctx, o, pool)
	default:
		return work(ctx, o, pool)
	}
}

// open makes all connections before the clock starts.
func open(ctx context.Context, pool *pgxpool.Pool) error {
	for range pool.Config().MaxConns {
		connection, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer connection.Release()
	}
	return nil
}

func inserter(pool *pgxpool.Pool, cooldown time.Duration) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: logger(), FetchCooldown: cooldown})
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func singles(ctx context.Context, o request, pool *pgxpool.Pool) error {
	client, err := inserter(pool, 0)
	if err != nil {
		return err
	}
	pad := padding(o)
	harness := begin("Insert")
	<-harness
	begun := time.Now()
	var next atomic.Int64
	errors := make(chan error, o.clients)
	for range o.clients {
		go func() {
			for {
				n := next.Add(1) - 1
				if n >= int64(o.count) {
					errors <- nil
					return
				}
				if _, err := client.Insert(ctx, Item{uint64(n), pad}, nil); err != nil {
					errors <- err
					return
				}
			}
		}()
	}
	for range o.clients {
		if err := <-errors; err != nil {
			return err
		}
	}
	return say(map[string]any{"event": "done", "items": o.count, "seconds": time.Since(begun).Seconds()})
}

func fill(ctx context.Context, o request, pool *pgxpool.Pool) error {
	client, err := inserter(pool, 0)
	if err != nil {
		return err
	}
	pad := padding(o)
	var options *river.InsertOpts
	if o.delay > 0 {
		options = &river.InsertOpts{ScheduledAt: time.Now().Add(o.delay)}
	}
	harness := begin("InsertManyFast of 1,000")
	<-harness
	var took time.Duration
	for first := 0; first < o.count; first += bulk {
		last := min(o.count, first+bulk)
		jobs := make([]river.InsertManyParams, 0, last-first)
		for n := first; n < last; n++ {
			jobs = append(jobs, river.InsertManyParams{Args: Item{uint64(n), pad}, InsertOpts: options})
		}
		begun := time.Now()
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
		took += time.Since(begun)
	}
	return say(map[string]any{"event": "done", "items": o.count, "seconds": took.Seconds()})
}

func produce(ctx context.Context, o request, pool *pgxpool.Pool) error {
	// A client that notifies as often as a best worker fetches.
	client, err := inserter(pool, time.Millisecond)
	if err != nil {
		return err
	}
	pad := padding(o)
	harness := begin("Insert, FetchCooldown 1 ms")
	<-harness
	tick := time.NewTicker(time.Second / time.Duration(o.rate))
	times := make([][2]uint64, 0, o.count)
	for n := range o.count {
		<-tick.C
		if _, err := client.Insert(ctx, Item{uint64(n), pad}, nil); err != nil {
			return err
		}
		times = append(times, [2]uint64{uint64(n), uint64(time.Now().UnixMicro())})
	}
	return say(map[string]any{"event": "done", "items": o.count, "times": times})
}

func work(ctx context.Context, o request, pool *pgxpool.Pool) error {
	account := &account{request: o, times: [][2]uint64{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{account: account})
	config := &river.Config{Logger: logger(), Workers: workers}
	words := "MaxWorkers 100, timing defaults"
	if o.best {
		words = "MaxWorkers 2,000, FetchCooldown 1 ms, FetchPollInterval 100 ms"
		config.FetchCooldown = time.Millisecond
		config.FetchPollInterval = 100 * time.Millisecond
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}
	} else {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	harness := begin(words)
	<-harness
	if err := client.Start(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	var told uint64
	for running := true; running; {
		select {
		case <-harness:
			running = false
		case <-tick.C:
			if handled := account.handled.Load(); handled != told {
				told = handled
				at := account.reached.Load()
				if at == 0 {
					at = time.Now().UnixMicro()
				}
				line := map[string]any{"event": "progress", "handled": handled, "first": account.first.Load(), "at": at}
				if err := say(line); err != nil {
					return err
				}
			}
		}
	}
	if err := client.Stop(ctx); err != nil {
		return err
	}
	return say(map[string]any{
		"event": "done", "handled": account.handled.Load(), "sum": account.sum.Load(), "times": account.times,
	})
}

func padding(o request) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	state := uint32(0x9e3779b9)
	pad := make([]byte, 0, o.bytes)
	for i := 0; i < o.bytes-24; i++ {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		pad = append(pad, letters[state>>26])
	}
	return string(pad)
}

func say(line map[string]any) error {
	return json.NewEncoder(os.Stdout).Encode(line)
}

// begin says ready; the channel yields a value for go and another for stop.
func begin(settings string) <-chan struct{} {
	_ = say(map[string]any{"event": "ready", "settings": settings})
	heard := make(chan struct{}, 2)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			heard <- struct{}{}
		}
		close(heard)
	}()
	return heard
}
