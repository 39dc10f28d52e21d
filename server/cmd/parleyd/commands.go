package main

import (
	"context"
	"fmt"
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
	Dev         devCmd           `cmd:"" help:"Run a whole Parley in one process, with nothing else installed. PARLEY_ variables override its configuration, as in PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s."`
	Serve       serveCmd         `cmd:"" help:"Run a node on MongoDB, Redis and NATS."`
	Config      configCmd        `cmd:"" help:"Look at the configuration."`
	Admin       adminCmd         `cmd:"" help:"Maintain the stores of a stopped Parley."`
	Healthcheck healthcheckCmd   `cmd:"" help:"Ask a running server whether it is ready; exit 0 if so."`
	Version     kong.VersionFlag `help:"Print the version."`
}

// devCmd has flags for everyday options. All other configuration keys are set by environment
// variables.
type devCmd struct {
	Listen    string `default:"127.0.0.1:8080" env:"PARLEY_LISTEN" help:"Address of the API: Connect, gRPC and gRPC-Web on one port."`
	OpsListen string `default:"127.0.0.1:8081" env:"PARLEY_OPS_LISTEN" help:"Address of /healthz, /readyz, /metrics and pprof."`
	DataDir   string `default:"data" env:"PARLEY_DATA_DIR" type:"path" help:"Where messages, events and the token are kept."`
	TLS       bool   `name:"tls" help:"Serve https, with a certificate made in the data directory: a browser then has one connection for all its tabs."`
	Verbose   bool   `short:"v" help:"Log what happens."`
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
	if c.TLS {
		if cfg.TLS.Cert, cfg.TLS.Key, err = server.DevCertificate(cfg.DataDir, cfg.Listen); err != nil {
			return err
		}
	}
	if c.Verbose {
		cfg.Log.Level = "debug"
	}
	s, err := server.New(ctx, cfg, server.WithDev(), server.WithVersion(program.Version()))
	if err != nil {
		return err
	}
	if err := s.Banner(os.Stdout); err != nil {
		return err
	}
	return s.Run(ctx)
}

// serveOnly returns an error if environ has variables that name engines. parleyd dev runs its own
// engines and would silently ignore them.
func serveOnly(environ []string) error {
	var names []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasPrefix(name, "PARLEY_MONGO_"),
			name == "PARLEY_REDIS_ADDR", name == "PARLEY_REDIS_PASSWORD", name == "PARLEY_REDIS_DB",
			name == "PARLEY_NATS_URL", name == "PARLEY_NATS_CREDENTIALS_FILE":
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("parleyd dev runs its own engines, and %s would do nothing: unset that, or use parleyd serve",
		strings.Join(names, ", "))
}

type serveCmd struct {
	File string `name:"config" short:"c" type:"existingfile" help:"YAML configuration; PARLEY_ variables override it."`
}

func (c *serveCmd) Run(ctx context.Context) error {
	cfg, err := load(c.File)
	if err != nil {
		return err
	}
	s, err := server.New(ctx, cfg, server.WithVersion(program.Version()))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func load(file string) (config.Config, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return cfg, err
	}
	return cfg, cfg.ValidateServe()
}

type configCmd struct {
	Check   checkCmd   `cmd:"" help:"Check a configuration for serve, and say everything that is wrong with it."`
	Default defaultCmd `cmd:"" help:"Print a commented configuration with every key and its default."`
}

type checkCmd struct {
	File string `arg:"" optional:"" type:"existingfile" help:"The YAML file; without it the environment alone."`
}

func (c *checkCmd) Run() error {
	if _, err := load(c.File); err != nil {
		return err
	}
	fmt.Println("the configuration is fine")
	return nil
}

type defaultCmd struct{}

func (defaultCmd) Run() error {
	_, err := os.Stdout.Write(config.Example())
	return err
}

type adminCmd struct {
	Restored restoredCmd `cmd:"" help:"Run after restoring a store from a backup: clients learn to load everything anew."`
}

type restoredCmd struct {
	File    string `name:"config" short:"c" type:"existingfile" xor:"store" help:"Configuration of a parleyd serve."`
	DataDir string `type:"existingdir" xor:"store" help:"Data directory of a parleyd dev."`
}

func (c *restoredCmd) Run(ctx context.Context) error {
	var epoch string
	var err error
	if c.DataDir != "" {
		var cfg config.Config
		if cfg, err = config.Override(server.DevConfig(), os.Environ()); err == nil {
			cfg.DataDir = c.DataDir
			epoch, err = server.RestoredDev(ctx, cfg)
		}
	} else {
		var cfg config.Config
		if cfg, err = load(c.File); err == nil {
			epoch, err = server.Restored(ctx, cfg)
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("the logs are now of epoch", epoch)
	return nil
}

type healthcheckCmd struct {
	URL string `default:"http://127.0.0.1:8081/readyz" help:"The ops address's readiness URL."`
}

func (c *healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}
