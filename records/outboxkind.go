package records

// OutboxKind says what a record on the outbox topic is. All but a message carry
// a record header that names them, so that they are told apart undecoded.
type OutboxKind uint8

// The kinds of records on the outbox topic.
const (
	OutboxMessage     OutboxKind = iota // an OutboxRecord; no header
	OutboxCommitEpoch                   // a CommitEpochRecord
	OutboxAnswer                        // an AnswerRecord
)

// CommitEpochHeader and AnswerHeader are the keys of the headers on the outbox
// topic.
const (
	CommitEpochHeader = "laneway-commit-epoch"
	AnswerHeader      = "laneway-answer"
)

// Header returns the key of the kind's record header, "" for a message.
func (k OutboxKind) Header() string {
	switch k {
	case OutboxCommitEpoch:
		return CommitEpochHeader
	case OutboxAnswer:
		return AnswerHeader
	default:
		return ""
	}
}

// OutboxKindOf returns the kind that a header key names, and false for a header
// that is not Laneway's.
func OutboxKindOf(header string) (OutboxKind, bool) {
	switch header {
	case CommitEpochHeader:
		return OutboxCommitEpoch, true
	case AnswerHeader:
		return OutboxAnswer, true
	default:
		return OutboxMessage, false
	}
}

// Logged is a record of an outbox partition as it was read.
type Logged struct {
	Offset int64
	Kind   OutboxKind
	Value  []byte
}
