package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// subjectForm is what a user id is held to.
var subjectForm = regexp.MustCompile(`^[!-~]{1,128}$`)

type tokenCommand struct {
	Sub string        `help:"The user id that the token is for." required:"" placeholder:"ID"`
	TTL time.Duration `name:"ttl" help:"How long the token is good." default:"24h"`
	Cap []string      `help:"A capability; may be repeated. 'channel:<pattern>=<action>,...' with the actions send, history, subscribe, moderate, send_as, manage; 'queue:<pattern>=<action>,...' with produce, consume; 'admin'." sep:"none" default:"channel:*=send,history,subscribe" placeholder:"CAP"`
}

// tokenJSON is a token for programs.
type tokenJSON struct {
	Token     string `json:"token"`
	Subject   string `json:"sub"`
	ExpiresAt string `json:"expires_at"`
}

// Run mints a token with the server's secret.
func (c *tokenCommand) Run(s *session) error {
	if !subjectForm.MatchString(c.Sub) {
		return usagef("--sub: want 1 to 128 printable ASCII characters without spaces")
	}
	if c.TTL <= 0 {
		return usagef("--ttl must be positive")
	}
	capabilities, err := parseCapabilities(c.Cap)
	if err != nil {
		return err
	}
	key, err := s.secret()
	if err != nil {
		return err
	}
	now := time.Now()
	expires := now.Add(c.TTL)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": c.Sub, "iat": now.Unix(), "exp": expires.Unix(), "cap": capabilities,
	}).SignedString([]byte(key))
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return s.printer().print(tokenJSON{Token: token, Subject: c.Sub, ExpiresAt: expires.UTC().Format(time.RFC3339)}, token)
}

// secret gives $PARLEY_AUTH_HS256_SECRET, which servers heed too, else what a local `parleyd dev` made.
func (s *session) secret() (string, error) {
	if key := s.getenv("PARLEY_AUTH_HS256_SECRET"); key != "" {
		return key, nil
	}
	path := filepath.Join(s.flags.DataDir, devSecretFile)
	secret, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w (has 'parleyd dev' run with this --data-dir?)", err)
	}
	key := strings.TrimSpace(string(secret))
	if key == "" {
		return "", fmt.Errorf("read the secret: %s is empty", path)
	}
	return key, nil
}

// adminCapability is the one that has no pattern and no actions.
const adminCapability = "admin"

// actionsOf are what capabilities may allow, by what stands before their pattern.
var actionsOf = map[string][]string{
	"channel": {"send", "history", "subscribe", "moderate", "send_as", "manage"},
	"queue":   {"produce", "consume"},
}

// patternForm is a name, or how names begin: one `*` at the end stands for any rest.
var patternForm = regexp.MustCompile(`^([A-Za-z0-9_-]{1,64}|[A-Za-z0-9_-]{0,64}\*)$`)

// parseCapabilities takes `channel:*=send,history`, `queue:jobs=consume` and `admin`. What a server would pass over is an error, for
// a token with it looks as if it allowed something.
func parseCapabilities(texts []string) (map[string][]string, error) {
	capabilities := make(map[string][]string)
	for _, text := range texts {
		if text == adminCapability {
			capabilities[text] = []string{"all"}
			continue
		}
		name, actions, ok := strings.Cut(text, "=")
		kind, pattern, two := strings.Cut(name, ":")
		valid := actionsOf[kind]
		if !ok || !two || valid == nil {
			return nil, usagef("--cap %q: want channel:<pattern>=<action>,..., queue:<pattern>=<action>,... or admin", text)
		}
		if !patternForm.MatchString(pattern) {
			return nil, usagef("--cap %q: the pattern must be 1 to 64 of A-Z a-z 0-9 _ -, or begin so and end with a *", text)
		}
		for action := range strings.SplitSeq(actions, ",") {
			if action = strings.TrimSpace(action); !slices.Contains(valid, action) {
				return nil, usagef("--cap %q: %q is no action on a %s: want some of %s", text, action, kind, strings.Join(valid, ", "))
			}
			capabilities[name] = append(capabilities[name], action)
		}
	}
	return capabilities, nil
}
