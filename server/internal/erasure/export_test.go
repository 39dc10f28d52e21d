package erasure

import "context"

// Step runs one step of a job.
func (r *Runner) Step(ctx context.Context, job *Job) error { return r.step(ctx, job) }
