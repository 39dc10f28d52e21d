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
// arguments are a directory, the bytes of a content, the bytes of a page, its number of messages,
// and "set" or "list": what Redis keeps the values in.
func floorReads(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 5 {
		return errors.New("requires the arguments directory, message bytes, page bytes, messages, set or list")
	}
	content, err1 := strconv.Atoi(args[1])
	page, err2 := strconv.Atoi(args[2])
	messages, err3 := strconv.Atoi(args[3])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	list := args[4] == "list"
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
	for i := range 3 * messages {
		value := fmt.Sprintf("%d ", i) + strings.Repeat("x", cachedRecordBytes+content)
		err := client.ZAdd(ctx, "page", redis.Z{Score: float64(i), Member: value}).Err()
		if list && i < messages {
			err = client.RPush(ctx, "list", value).Err()
		}
		if err != nil {
			return err
		}
	}
	read := func(ctx context.Context) ([]string, error) {
		return client.ZRange(ctx, "page", int64(-messages), -1).Result()
	}
	if list {
		read = func(ctx context.Context) ([]string, error) { return client.LRange(ctx, "list", 0, -1).Result() }
	}
	answer := make([]byte, page)
	mux := http.NewServeMux()
	mux.Handle(echoProcedure, connect.NewUnaryHandlerSimple(echoProcedure,
		func(ctx context.Context, _ *parleyv1.ListMessagesRequest) (*wrapperspb.BytesValue, error) {
			values, err := read(ctx)
			if err != nil || len(values) != messages {
				return nil, fmt.Errorf("%d values: %w", len(values), err)
			}
			return wrapperspb.Bytes(answer), nil
		}))
	return serveFloor(ctx, mux, out)
}
