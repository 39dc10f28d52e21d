package cli

// benchArea is what `bench` calls queues.
const benchArea = "queue"

type queueBenchCommand struct{ benchOptions }

// Run is `bench queue`.
func (c *queueBenchCommand) Run(s *session) error { return c.measure(s, []string{benchArea}) }
