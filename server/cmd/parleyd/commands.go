package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/internal/program"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
)

type commands struct {
	Dev         devCmd           `cmd:"" help:"Run all of Parley in one process, for development. PARLEY_ variables override its configuration: PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s."`
	Serve       serveCmd         `cmd:"" help:"Run a node on MongoDB, Redis and NATS."`
	Config      configCmd        `cmd:"" help:"Check and print the configuration."`
	Admin       adminCmd         `cmd:"" help:"Maintain the stores of a stopped Parley."`
	Healthcheck healthcheckCmd   `cmd:"" help:"Exit with 0 if a running server is ready."`
	Version     kong.VersionFlag `help:"Print the version."`
}

// devCmd has flags for everyday options. All other configuration keys are set by environment
// variables.
type devCmd struct {
	Listen    string `default:"127.0.0.1:8080" env:"PARLEY_LISTEN" help:"Address of the API: Connect, gRPC and gRPC-Web on one port."`
	OpsListen string `default:"127.0.0.1:8081" env:"PARLEY_OPS_LISTEN" help:"Address of /healthz, /readyz, /metrics and pprof."`
	DataDir   string `default:"data" env:"PARLEY_DATA_DIR" type:"path" help:"Directory of messages, events and the token."`
	TLS       bool   `name:"tls" help:"Serve https with a certificate created in the data directory. A browser then shares one connection between its tabs."`
	Verbose   bool   `short:"v" help:"Log at level debug."`
}

func (c *devCmd) Run(ctx context.Context) error {
	if err := serveOnly(os.Environ()); err != nil {
		return err
	}
	cfg, err := config.Override(server.DevConfig(), os.Environ())
	if err != nil {
		return err
	}
	cfg.Listen, cfg.OpsListen, cfg.DataDir = c.Listen, c.OpsListen, c.DataDir
	if c.Verbose {
		cfg.Log.Level = "debug"
	}
	dev := server.WithDev()
	if c.TLS {
		dev = server.WithDevTLS()
	}
	s, err := server.New(ctx, cfg, dev, server.WithVersion(program.Version()))
	if err != nil {
		return ignoreCanceled(err)
	}
	if err := s.Banner(os.Stdout); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	return s.Run(ctx)
}

// ignoreCanceled returns nil for the error of a start that a signal canceled: it ended as asked.
func ignoreCanceled(err error) error {
	if errors.Is(err, server.ErrCanceled) {
		return nil
	}
	return err
}

// serveOnly returns an error if environ has variables that parleyd dev would silently ignore: those
// of engines, because it runs its own, and the path of a configuration file.
func serveOnly(environ []string) error {
	var names []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if key, ok := config.EnvKey(name); ok && engineKey(key) || name == "PARLEY_CONFIG" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("parleyd dev runs its own engines and ignores %s: unset it, or use parleyd serve",
		strings.Join(names, ", "))
}

// engineKey reports whether a key says where an engine is, or how to connect to it.
func engineKey(key string) bool {
	switch key {
	case "redis.addr", "redis.username", "redis.password", "redis.db", "nats.url", "nats.credentials_file":
		return true
	}
	return slices.ContainsFunc([]string{"mongo.", "redis.tls.", "redis.sentinel.", "redis.cluster.", "nats.tls."},
		func(section string) bool { return strings.HasPrefix(key, section) })
}

type serveCmd struct {
	File string `name:"config" short:"c" env:"PARLEY_CONFIG" type:"existingfile" help:"YAML configuration. PARLEY_ variables override it."`
}

func (c *serveCmd) Run(ctx context.Context) error {
	cfg, err := config.LoadServe(c.File, os.Environ())
	if err != nil {
		return err
	}
	s, err := server.New(ctx, cfg, server.WithVersion(program.Version()))
	if err != nil {
		return ignoreCanceled(err)
	}
	return s.Run(ctx)
}

// configPath returns the path of a flag, or the value of PARLEY_CONFIG if the flag was not given.
// It is for flags that kong does not set from the environment: positional ones, and those that
// exclude others.
func configPath(file string) string { return cmp.Or(file, os.Getenv("PARLEY_CONFIG")) }

type configCmd struct {
	Check   checkCmd   `cmd:"" help:"Check a configuration for serve, and list all its errors."`
	Default defaultCmd `cmd:"" help:"Print a commented configuration with every key and its default."`
	Doc     docCmd     `cmd:"" help:"Print every key with its variables, its default and its meaning, as a Markdown table."`
}

type checkCmd struct {
	File string `arg:"" optional:"" type:"existingfile" help:"The YAML file. Default: $PARLEY_CONFIG, or only the environment."`
}

func (c *checkCmd) Run() error {
	if _, err := config.LoadServe(configPath(c.File), os.Environ()); err != nil {
		return err
	}
	fmt.Println("the configuration is valid")
	return nil
}

type defaultCmd struct{}

func (defaultCmd) Run() error {
	_, err := os.Stdout.Write(config.Example())
	return err
}

type docCmd struct{}

func (docCmd) Run() error {
	doc, err := config.Doc()
	if err != nil {
		return err
	}
	_, err = os.Stdout.WriteString(doc)
	return err
}

type adminCmd struct {
	Restored restoredCmd `cmd:"" help:"Run after restoring a store from a backup: clients then load everything again."`
}

type restoredCmd struct {
	File    string `name:"config" short:"c" type:"existingfile" xor:"store" help:"Configuration of parleyd serve."`
	DataDir string `type:"existingdir" xor:"store" help:"Data directory of parleyd dev."`

	Erasures string `type:"existingfile" placeholder:"FILE" help:"The erasures to repeat: the output of parley admin erasures --json."`
}

func (c *restoredCmd) Run(ctx context.Context) error {
	var epoch string
	erasures, err := readErasures(c.Erasures)
	if err != nil {
		return err
	}
	if c.DataDir != "" {
		var cfg config.Config
		if cfg, err = config.Override(server.DevConfig(), os.Environ()); err == nil {
			cfg.DataDir = c.DataDir
			epoch, err = server.RestoredDev(ctx, cfg, erasures...)
		}
	} else {
		var cfg config.Config
		if cfg, err = config.LoadServe(configPath(c.File), os.Environ()); err == nil {
			epoch, err = server.Restored(ctx, cfg, erasures...)
		}
	}
	if err != nil {
		return err
	}
	if len(erasures) > 0 {
		fmt.Printf("%d erasures begin again when a server starts\n", len(erasures))
	}
	fmt.Println("the epoch of the logs is now", epoch)
	return nil
}

type healthcheckCmd struct {
	URL  string `help:"The readiness URL. Default: /readyz of the configured ops_listen, on this machine."`
	File string `name:"config" short:"c" env:"PARLEY_CONFIG" type:"existingfile" help:"The server's configuration. PARLEY_ variables override it."`
}

func (c *healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if c.URL == "" {
		cfg, err := config.Load(c.File, os.Environ())
		if err != nil {
			return err
		}
		c.URL = readyURL(cfg.OpsListen)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	resp, err := new(http.Transport).RoundTrip(req) // through no proxy
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}

// readyURL returns the readiness URL of a server whose ops address is the host:port listen. An
// unspecified host becomes loopback.
func readyURL(listen string) string {
	host, port, _ := net.SplitHostPort(listen) // validated
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz"
}
