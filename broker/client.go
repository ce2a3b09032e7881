package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/laneway/laneway/records"
)

// MaxMessageBytes is the max.message.bytes of Laneway's topics: the largest
// record with room for the batch around it. A quarantined record has room for
// any of them with its reason.
const (
	MaxMessageBytes           = 1 << 20
	MaxQuarantineMessageBytes = MaxMessageBytes + 64<<10
)

// ClientConfig says how to reach the broker.
type ClientConfig struct {
	Brokers []string // host:port
	// ClientID names the client to the broker and in metrics; with a Registerer
	// it must be unique within the process.
	ClientID string
	TLS      *tls.Config
	SASL     []sasl.Mechanism
	// Registerer receives the client's metrics (prefix laneway_kafka_); nil for
	// none.
	Registerer prometheus.Registerer
}

// Options returns the settings that every client of Laneway shares: acks from
// all in-sync replicas, idempotent writes, partitions chosen by the caller, no
// topics made by accident, and no position that moves on its own.
func (c ClientConfig) Options(extra ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("laneway", "1"),
		kgo.DialTimeout(5 * time.Second),
		kgo.RequestTimeoutOverhead(10 * time.Second),
		kgo.RetryTimeout(20 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.ConsiderMissingTopicDeletedAfter(15 * time.Second),

		// Idempotent writes are the client's default and need acks from all.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// No linger: under load batches form while earlier requests are in flight.
		kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(MaxMessageBytes),
		kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()),
		kgo.ProduceRequestTimeout(10 * time.Second),
		kgo.MaxBufferedRecords(64 << 10),
		kgo.MaxBufferedBytes(64 << 20),

		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(5 * time.Second),
		kgo.FetchMaxBytes(16 << 20),
		kgo.FetchMaxPartitionBytes(2 << 20),
		kgo.MaxDecompressBatchBytes(64 << 20),
	}
	if c.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	if len(c.SASL) > 0 {
		opts = append(opts, kgo.SASL(c.SASL...))
	}
	if c.Registerer != nil {
		opts = append(opts, kgo.WithHooks(kprom.NewMetrics("laneway_kafka",
			kprom.Registerer(c.Registerer), kprom.WithClientLabel())))
	}
	return append(opts, extra...)
}

// NewClient returns a client. It does not connect: the first call does.
func NewClient(c ClientConfig, extra ...kgo.Opt) (*kgo.Client, error) {
	if len(c.Brokers) == 0 {
		return nil, errors.New("no broker address: set log.brokers, or use the embedded log")
	}
	cl, err := kgo.NewClient(c.Options(extra...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client for %s: %w", strings.Join(c.Brokers, ","), err)
	}
	return cl, nil
}

// Ping reports whether any broker answers, and which addresses were tried when
// none does.
func Ping(ctx context.Context, cl *kgo.Client) error {
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("%w at %s: %w", ErrUnreachable, strings.Join(seeds(cl), ","), err)
	}
	return nil
}

func seeds(cl *kgo.Client) []string {
	s, _ := cl.OptValue(kgo.SeedBrokers).([]string)
	return s
}

// IsEpoch reports whether a record of the dispatch topic is an EpochRecord.
func IsEpoch(r *kgo.Record) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == records.EpochHeader {
			return true
		}
	}
	return false
}
