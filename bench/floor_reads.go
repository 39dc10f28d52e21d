package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/wrapperspb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// echoProcedure is the procedure that the floor of reads serves.
const echoProcedure = "/bench.Floor/Page"

// cachedRecordBytes is the size of a cached message besides its content.
const cachedRecordBytes = 260

// floorReads is a server with a redis-server of its own. For each call it reads as many values from
// Redis as a page has messages, ignores them, and answers as many bytes as a page has. Its
// arguments are a directory, the bytes of a content, and the bytes of a page.
func floorReads(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 3 {
		return errors.New("requires the arguments directory, message bytes, page bytes")
	}
	content, err1 := strconv.Atoi(args[1])
	page, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(args[0], "parley-bench-floor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	client, stop, err := startRedis(ctx, dir, nothingKept)
	if err != nil {
		return err
	}
	defer stop()
	for i := range 3 * pageMessages {
		value := fmt.Sprintf("%d ", i) + strings.Repeat("x", cachedRecordBytes+content)
		if err := client.ZAdd(ctx, "page", redis.Z{Score: float64(i), Member: value}).Err(); err != nil {
			return err
		}
	}
	answer := make([]byte, page)
	mux := http.NewServeMux()
	mux.Handle(echoProcedure, connect.NewUnaryHandlerSimple(echoProcedure,
		func(ctx context.Context, _ *parleyv1.ListMessagesRequest) (*wrapperspb.BytesValue, error) {
			values, err := client.ZRange(ctx, "page", -pageMessages, -1).Result()
			if err != nil || len(values) != pageMessages {
				return nil, fmt.Errorf("%d values: %w", len(values), err)
			}
			return wrapperspb.Bytes(answer), nil
		}))
	return serveFloor(ctx, mux, out)
}
