package claims

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway/laneway/mailbox"
)

// Worker works the partitions that a Keeper holds. Its methods are called from
// one goroutine, but for LetGo.
type Worker interface {
	// Hold: the partition is in this instance's hands from now on.
	Hold(partition int32)
	// LetGo stops the work on a partition and returns when nothing of it is worked
	// any more and its position is committed.
	LetGo(partition int32)
	// Lost: all work has to stop at once.
	Lost(err error)
}

// Options configure a Keeper. Store, Name, Partitions and Term are required.
type Options struct {
	Store   mailbox.RegistryStore
	Name    string
	Address string
	// Partitions is how many outbox partitions there are; Own are this instance's,
	// ascending. With Standby it takes those that nobody works.
	Partitions int
	Own        []int32
	Standby    bool
	// Term is after how long without a sign of life an instance counts as gone.
	Term time.Duration
	// Ended are the tokens of Keepers whose work is known to have ended: earlier
	// ones of this process. Their claims are taken at once.
	Ended  []string
	Logger *slog.Logger // nil for none
}

// Keeper holds an instance's claims. Make one with [New], call Run once, and
// Release after that when its work has ended in order.
type Keeper struct {
	o     Options
	token string
	wake  chan struct{}

	mu      sync.Mutex
	worker  Worker
	held    map[int32]bool // in hand
	ending  map[int32]bool // of these: being stopped
	stopped map[int32]bool // of these: to be released
	joined  bool
	beat    uint64
	waits   error
	table   Table
	looked  bool
	lost    error
	until   time.Time // the claims are trusted until then
}

// New returns a Keeper. Nothing is claimed before Run.
func New(o Options) (*Keeper, error) {
	if o.Store == nil || o.Name == "" || o.Partitions < 1 || o.Term <= 0 {
		return nil, errors.New("claims: Store, Name, Partitions and Term are required")
	}
	if len(o.Name) > maxText || len(o.Address) > maxText {
		return nil, fmt.Errorf("claims: a name or address of more than %d bytes", maxText)
	}
	for i, p := range o.Own {
		if p < 0 || int(p) >= o.Partitions || i > 0 && p <= o.Own[i-1] {
			return nil, fmt.Errorf("claims: own partitions %v are not an ascending set of 0 to %d", o.Own, o.Partitions-1)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails
	return &Keeper{
		o: o, token: hex.EncodeToString(token[:]), wake: make(chan struct{}, 1),
		held: map[int32]bool{}, ending: map[int32]bool{}, stopped: map[int32]bool{},
		waits: errors.New("the claims have not been read yet"),
	}, nil
}

// Token names this run.
func (k *Keeper) Token() string { return k.token }

// Attach gives the partitions in hand to a worker, and those that come.
func (k *Keeper) Attach(w Worker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.worker = w
	for _, p := range k.inHand() {
		w.Hold(p)
	}
	if k.lost != nil {
		w.Lost(k.lost)
	}
}

// inHand returns what is held, in order.
func (k *Keeper) inHand() []int32 {
	out := make([]int32, 0, len(k.held))
	for p := range k.held {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// Held reports whether a partition is in this instance's hands.
func (k *Keeper) Held(p int32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[p]
}

// Trusted reports whether nobody else can have this instance's claims now, by its
// own monotonic clock: also a moment after the process was paused for long.
func (k *Keeper) Trusted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost == nil && time.Now().Before(k.until)
}

// Unheld returns the partitions that nobody works, as last seen, and false before
// the first look.
func (k *Keeper) Unheld() ([]int32, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.looked {
		return nil, false
	}
	return k.table.Unheld(k.o.Partitions), true
}

// Ready returns nil when this instance holds its own set and nobody's partition
// is without one, else an error that names each.
func (k *Keeper) Ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost != nil {
		return k.lost
	}
	if k.waits != nil {
		return fmt.Errorf("this instance has claimed no outbox partitions: %w", k.waits)
	}
	var errs []error
	for _, p := range k.o.Own {
		if !k.held[p] {
			errs = append(errs, fmt.Errorf("outbox partition %d is in the hands of %s, which is asked to let it go", p, orNobody(k.table.Holder(p))))
		}
	}
	if gap := k.table.Unheld(k.o.Partitions); len(gap) > 0 {
		errs = append(errs, fmt.Errorf("outbox partitions %s are held by no instance: their records are not dispatched", Ranges(gap)))
	}
	return errors.Join(errs...)
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// Run keeps the claims until ctx ends, and returns nil then, or until they are
// lost: the worker has been told.
func (k *Keeper) Run(ctx context.Context) error {
	err := k.run(ctx)
	if ctx.Err() != nil && !isLost(err) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = err
	clear(k.held)
	if k.worker != nil {
		k.worker.Lost(err)
	}
	return err
}

func isLost(err error) bool {
	return errors.Is(err, ErrLapsed) || errors.Is(err, ErrTaken) || errors.Is(err, ErrOverlap)
}

// run asks for one beat at a time. The trust in what is held ends by a timer of
// its own, whether or not a call comes back.
func (k *Keeper) run(ctx context.Context) error {
	type answer struct {
		asked time.Time
		err   error
	}
	var (
		began   = time.Now()
		term    = k.o.Term
		o       = &observer{term: term, seen: map[string]sight{}, ended: map[string]bool{}}
		answers = make(chan answer, 1)
		asking  bool
		last    error
		lapse   = time.NewTimer(time.Hour)
		trusted bool // lapse is running
	)
	for _, t := range k.o.Ended {
		o.ended[t] = true
	}
	defer lapse.Stop()
	ask := func() {
		if asking {
			return
		}
		asking = true
		asked := time.Now()
		go func() {
			call, cancel := context.WithTimeout(ctx, max(term/3, time.Second))
			defer cancel()
			answers <- answer{asked, k.once(call, o, func() time.Duration { return time.Since(began) })}
		}()
	}
	// Waiting for somebody's end, an instance looks more often.
	waiting := max(term/20, 10*time.Millisecond)
	tick := time.NewTicker(waiting)
	defer tick.Stop()
	ask()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lapse.C:
			if !trusted {
				lapse.Reset(time.Hour)
				continue
			}
			return fmt.Errorf("%w for %v: %w", ErrLapsed, term*3/4, cmp.Or(last, context.DeadlineExceeded))
		case <-tick.C:
			ask()
		case <-k.wake:
			ask()
		case a := <-answers:
			asking = false
			switch {
			case a.err == nil:
				last = nil
				if k.hasJoined() {
					if !trusted {
						trusted = true
						tick.Reset(term / 3)
					}
					lapse.Reset(time.Until(k.trust(a.asked)))
				}
			case ctx.Err() != nil:
				return ctx.Err()
			case isLost(a.err), errors.Is(a.err, mailbox.ErrStoreRestarted), errors.Is(a.err, mailbox.ErrUnsafeStore), errors.Is(a.err, mailbox.ErrCorrupt):
				return a.err
			default:
				last = a.err
				k.o.Logger.Warn("claims of outbox partitions not renewed", "error", a.err)
			}
		}
	}
}

// trust extends the trust in what is held, from when a beat was asked for.
func (k *Keeper) trust(asked time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = asked.Add(k.o.Term * 3 / 4)
	return k.until
}

func (k *Keeper) hasJoined() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.joined
}

// attempts bounds how often a step is made that others come before.
const attempts = 64

// once makes one step: reads the table, decides, and writes. A step that others
// came before is made again from what they wrote; that takes no longer than the
// call's context.
func (k *Keeper) once(ctx context.Context, o *observer, now func() time.Duration) error {
	for try := range attempts {
		if err := pause(ctx, try); err != nil {
			return err
		}
		t, revision, err := load(ctx, k.o.Store)
		if err != nil {
			return err
		}
		o.look(&t, now())
		w := k.wish(&t)
		out, err := step(&t, w, o, now())
		if err != nil {
			return err
		}
		if out.waits == "" && k.o.Standby {
			takeOver(&out.next, k.token, k.o.Partitions, w.release)
		}
		if out.wrote {
			data, err := out.next.Encode()
			if err != nil {
				return err
			}
			err = k.o.Store.CompareAndSetRegistry(ctx, RowName, revision, data)
			if errors.Is(err, mailbox.ErrStoreRestarted) {
				return err
			}
			if errors.Is(err, mailbox.ErrHeadMoved) || errors.Is(err, mailbox.ErrOutcomeUnknown) {
				continue
			}
			if err != nil {
				return fmt.Errorf("write the outbox claims: %w", err)
			}
			o.look(&out.next, now())
		}
		k.wrote(&out, w)
		return nil
	}
	return fmt.Errorf("write the outbox claims: %w by others %d times", mailbox.ErrHeadMoved, attempts)
}

// wish says what to write, from the table that was read: a write whose outcome
// was not known may be in it.
func (k *Keeper) wish(t *Table) wish {
	k.mu.Lock()
	defer k.mu.Unlock()
	me := Instance{Name: k.o.Name, Token: k.token, Address: k.o.Address, Own: k.o.Own, Partitions: k.o.Partitions, Standby: k.o.Standby, Beat: k.beat}
	if in := t.byToken(k.token); in != nil {
		k.joined = true
		me.Beat = in.Beat
	}
	w := wish{me: me, joined: k.joined}
	for p := range k.stopped {
		w.release = append(w.release, p)
	}
	return w
}

// wrote takes over what was written.
func (k *Keeper) wrote(out *outcome, w wish) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table, k.looked = out.next, true
	if out.waits != "" {
		if k.waits == nil || k.waits.Error() != out.waits {
			k.o.Logger.Warn("waiting for outbox partitions", "because", out.waits)
		}
		k.waits = errors.New(out.waits)
		return
	}
	k.waits, k.joined, k.beat = nil, true, w.me.Beat+1
	for _, p := range w.release {
		delete(k.held, p)
		delete(k.ending, p)
		delete(k.stopped, p)
	}
	var taken []int32
	for _, p := range out.next.heldBy(k.token) {
		if !k.held[p] {
			k.held[p] = true
			taken = append(taken, p)
		}
	}
	if len(taken) > 0 {
		k.o.Logger.Info("outbox partitions taken", "partitions", Ranges(taken))
	}
	if k.worker != nil {
		for _, p := range taken {
			k.worker.Hold(p)
		}
	}
	for _, p := range out.giveUp {
		if k.held[p] && !k.ending[p] {
			k.ending[p] = true
			k.o.Logger.Info("letting an outbox partition go to its owner", "partition", p)
			go k.letGo(p, k.worker)
		}
	}
}

func (k *Keeper) letGo(p int32, worker Worker) {
	if worker != nil {
		worker.LetGo(p)
	}
	k.mu.Lock()
	k.stopped[p] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Release lets all claims go, so that others need not wait. Call it after Run, and
// only when all work has ended.
func (k *Keeper) Release(ctx context.Context) error {
	k.mu.Lock()
	joined := k.joined
	clear(k.held)
	k.mu.Unlock()
	if !joined {
		return nil
	}
	for try := range attempts {
		if err := pause(ctx, try); err != nil {
			return err
		}
		t, revision, err := load(ctx, k.o.Store)
		if err != nil {
			return err
		}
		if t.byToken(k.token) == nil {
			return nil
		}
		t.remove(k.token)
		data, err := t.Encode()
		if err != nil {
			return err
		}
		err = k.o.Store.CompareAndSetRegistry(ctx, RowName, revision, data)
		if err == nil {
			return nil
		}
		if errors.Is(err, mailbox.ErrStoreRestarted) || !errors.Is(err, mailbox.ErrHeadMoved) && !errors.Is(err, mailbox.ErrOutcomeUnknown) {
			return fmt.Errorf("release the outbox claims: %w", err)
		}
	}
	return fmt.Errorf("release the outbox claims: %w", mailbox.ErrHeadMoved)
}

// pause spaces attempts: the first at once, the later ones up to 50 ms.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(min(try, 10)) * 5 * time.Millisecond):
		return nil
	}
}

// Load reads the table of a store.
func Load(ctx context.Context, st mailbox.RegistryStore) (Table, error) {
	t, _, err := load(ctx, st)
	return t, err
}

func load(ctx context.Context, st mailbox.RegistryStore) (Table, uint64, error) {
	data, revision, err := st.LoadRegistry(ctx, RowName)
	if err != nil {
		return Table{}, 0, fmt.Errorf("read the outbox claims: %w", err)
	}
	t, err := Decode(data)
	return t, revision, err
}

// Ranges shows a set of partitions, ascending, as 0-31,40.
func Ranges(ps []int32) string {
	var parts []string
	for i := 0; i < len(ps); {
		j := i
		for j+1 < len(ps) && ps[j+1] == ps[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(ps[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ps[i], ps[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
