package records

import (
	"google.golang.org/protobuf/proto"

	logv1 "github.com/laneway/laneway/api/laneway/log/v1"
	"github.com/laneway/laneway/mailbox"
)

// maxAnswerBytes is far above any AnswerRecord.
const maxAnswerBytes = 4 << 10

// EncodeAnswer validates an AnswerRecord and returns its bytes.
func EncodeAnswer(r *logv1.AnswerRecord) ([]byte, error) {
	if err := checkAnswer(r); err != nil {
		return nil, err
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil, NewError(Invalid, err, "%s", err)
	}
	return b, nil
}

// DecodeAnswer reads and validates an AnswerRecord.
func DecodeAnswer(b []byte) (*logv1.AnswerRecord, error) {
	if err := checkSize(len(b), maxAnswerBytes); err != nil {
		return nil, err
	}
	r := new(logv1.AnswerRecord)
	if err := proto.Unmarshal(b, r); err != nil {
		return nil, NewError(Undecodable, err, "not an answer record")
	}
	if err := checkAnswer(r); err != nil {
		return nil, err
	}
	return r, nil
}

func checkAnswer(r *logv1.AnswerRecord) error {
	if err := checkVersion(uint64(r.GetSchemaVersion())); err != nil {
		return err
	}
	for _, id := range [...]struct{ what, id string }{
		{"tenant_id", r.GetTenantId()},
		{"conversation_id", r.GetConversationId()},
		{"sender_id", r.GetSenderId()},
		{"client_message_id", r.GetClientMessageId()},
	} {
		if err := checkID(id.what, id.id); err != nil {
			return err
		}
	}
	if n := len(r.GetRequestDigest()); n != len(mailbox.Digest{}) {
		return NewError(Invalid, nil, "request_digest has %d bytes, want %d", n, len(mailbox.Digest{}))
	}
	return nil
}
