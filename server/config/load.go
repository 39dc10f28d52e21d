package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
)

// renamed maps the former names of keys, which are rejected, to their names.
var renamed = map[string]string{
	"buckets":             "shards",
	"limits.queue_bytes":  "limits.stream_queue_bytes",
	"limits.queue_events": "limits.stream_queue_events",
}

// Load returns the defaults, overridden by the file at path (no file if path is empty) and then by
// the variables of environ that begin with PARLEY_. environ has the form of os.Environ. Load also
// reads the files that _FILE variables name. Its error lists every invalid key and variable. Load
// checks what every server requires, LoadServe also what `parleyd serve` requires.
func Load(path string, environ []string) (Config, error) {
	return load(path, environ, (*Config).validate)
}

// LoadServe is like Load, and also checks what `parleyd serve` requires, such as a token key.
func LoadServe(path string, environ []string) (Config, error) {
	return load(path, environ, (*Config).validate, (*Config).validateServe)
}

func load(path string, environ []string, rules ...func(*Config, *checker)) (Config, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
	}
	cfg, err := parse(Default(), data, environ, rules...)
	if err != nil {
		if path == "" {
			path = "environment"
		}
		return Config{}, fmt.Errorf("configuration (%s):\n%w", path, err)
	}
	return cfg, nil
}

// Override returns base, overridden by the variables of environ, which it reads and checks like
// Load.
func Override(base Config, environ []string) (Config, error) {
	cfg, err := parse(base, nil, environ, (*Config).validate)
	if err != nil {
		return Config{}, fmt.Errorf("configuration (environment):\n%w", err)
	}
	return cfg, nil
}

// setting is one value of the file or of the environment. source is the key or the variable, for
// errors.
type setting struct {
	key, source string
	value       any
}

// parse returns base, overridden by the file's data and then by the variables of environ, and
// checks the result with rules. A value that can't be decoded is reported and that of base stays,
// so that the rules still check all others.
func parse(base Config, data []byte, environ []string, rules ...func(*Config, *checker)) (Config, error) {
	var c checker
	known := flatten(base)
	settings, readable := fileSettings(data, known, &c)
	settings = append(settings, envSettings(environ, known, &c)...)
	cfg := base
	for _, s := range settings {
		if names := itemKeys[s.key]; names != nil && !c.items(s, names) {
			continue
		}
		err := s.decode(&cfg)
		c.checkf(err == nil, s.source, "must be %s", form(s.key, known[s.key])) // the decoder's error would print a secret
	}
	if readable {
		for _, rule := range rules {
			rule(&cfg, &c)
		}
	}
	if err := errors.Join(c.errs...); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// flatten returns the values of cfg by the paths of their keys.
func flatten(cfg Config) map[string]any {
	k := koanf.New(".")
	_ = k.Load(structs.Provider(cfg, "yaml"), nil) // a struct always loads
	return k.All()
}

// fileSettings returns the values of the file, ordered by key. readable is false if the data is not
// a YAML mapping.
func fileSettings(data []byte, known map[string]any, c *checker) (settings []setting, readable bool) {
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), koanfyaml.Parser()); err != nil {
		c.errs = append(c.errs, fmt.Errorf("not a YAML mapping: %w", err))
		return nil, false
	}
	file := k.All()
	for _, key := range slices.Sorted(maps.Keys(file)) {
		_, isKey := known[key]
		switch {
		case isKey:
			settings = append(settings, setting{key: key, source: key, value: file[key]})
		case !isSection(key, known):
			c.unknown(key, "unknown key", renamed[key])
		default: // an empty section is valid
			c.checkf(empty(file[key]), key, "is a section, not a value")
		}
	}
	return settings, true
}

// unknown reports an unknown key or variable. A replacement, its new name, takes the place of
// problem in the error.
func (c *checker) unknown(name, problem, replacement string) {
	if replacement != "" {
		problem = "was renamed to " + replacement
	}
	c.checkf(false, name, "%s", problem)
}

func empty(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

func isSection(key string, known map[string]any) bool {
	for k := range known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// Keys returns the path of every key, such as redis.pool_size, sorted.
func Keys() []string { return slices.Sorted(maps.Keys(flatten(Default()))) }

// decode writes the setting's value to its field of cfg.
func (s *setting) decode(cfg *Config) error {
	k := koanf.New(".")
	if err := k.Set(s.key, s.value); err != nil {
		return err
	}
	return k.UnmarshalWithConf("", cfg, koanf.UnmarshalConf{Tag: "yaml", DecoderConfig: &mapstructure.DecoderConfig{
		ZeroFields: true, // a list replaces the default's, instead of being written into it
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), strict),
	}})
}

// strict is a decode hook that returns an error for numbers that the decoder would change: a
// fraction for a whole number, and a number without a unit for a duration.
func strict(from, to reflect.Type, v any) (any, error) {
	f, isFloat := v.(float64)
	switch {
	case isFloat && to.Kind() == reflect.Int && f != float64(int(f)):
		return nil, errors.New("must be a whole number")
	case to == reflect.TypeFor[time.Duration]() && from != to && v != 0:
		return nil, errors.New("must have a unit")
	}
	return v, nil
}

// form describes, for an error, which values a key accepts. def is the key's default.
func form(key string, def any) string {
	if names := itemKeys[key]; names != nil {
		return "a list of items with the keys " + strings.Join(names, ", ") + ", whose values are strings"
	}
	if _, ok := def.(time.Duration); ok {
		return "a duration with a unit, as in 30s"
	}
	switch reflect.TypeOf(def).Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list of strings"
	default:
		return "a string: quote a number"
	}
}
