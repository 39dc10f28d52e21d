package consume

import "time"

// OpenRequest asks for a stream of a session.
type OpenRequest struct {
	Subject string
	// Expires is when the stream ends with TOKEN_EXPIRED; the zero time means never.
	Expires         time.Time
	Topics          []string
	Group, Consumer string
	// Concurrency is how many messages the consumer handles at a time, MaxInFlight how many it holds
	// at most, MaxBytes their bytes. All are more than 0.
	Concurrency, MaxInFlight int
	MaxBytes                 int64
	// AckTimeout is how long a delivery lasts without extension; 0 means the group's.
	AckTimeout   time.Duration
	ReportsBegun bool
	// OnRenewal is called with each token that replaces the stream's. It must not block. Nil does nothing.
	OnRenewal func(Renewal)
	// Resume continues a session instead of starting one.
	Resume *Resume
}

// Resume continues a session on another stream.
type Resume struct {
	SessionID string
	// Resumes is how many streams the session had before. The stream with the highest number has it.
	Resumes int64
	Held    []HeldDelivery
	// Unanswered are what the consumer decided without an answer.
	Unanswered []Settlement
}

// Started describes the session of a new stream.
type Started struct {
	SessionID string
	// Heartbeat is the longest time without a frame, Grace how long the session keeps its deliveries
	// without contact.
	Heartbeat, Grace time.Duration
	// Lost are deliveries of Resume that the session no longer has.
	Lost []Token
	// Unanswered are the results of Resume.Unanswered, in order: nil or a fault.
	Unanswered []error
}

// Extension restarts the ack timeouts of deliveries.
type Extension struct {
	// Tokens name deliveries; All means all of the session.
	Tokens []Token
	All    bool
	// AckTimeout is the new timeout; 0 means that of the session or the group.
	AckTimeout time.Duration
	// Begun: handlers began these deliveries.
	Begun bool
}

// Update changes the limits of a session; 0 leaves a limit as it is.
type Update struct {
	Concurrency, MaxInFlight int
	MaxBytes                 int64
	// Renewal is the token that replaces that of the session's stream; nil for none.
	Renewal *Renewal
}

// Renewal describes a token of the session's subject. Key and IssuedAt are those of ident.Principal, by
// which the token can be revoked. Expires is when it expires, zero for never.
type Renewal struct {
	Key               string
	IssuedAt, Expires time.Time
}

// ReceiveRequest asks for messages in one call.
type ReceiveRequest struct {
	Subject                string
	Topic, Group, Consumer string
	// Max bounds the messages. Wait is how long to wait for the first. AckTimeout is the time for
	// their settlement; 0 means the group's.
	Max              int
	Wait, AckTimeout time.Duration
}

// Received is the answer to a ReceiveRequest.
type Received struct {
	SessionID  string
	Deliveries []Delivery
}
