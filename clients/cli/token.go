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

	"github.com/parleyhq/parley/internal/access"
)

// subjectForm is the form of a user id.
var subjectForm = regexp.MustCompile(`^[!-~]{1,128}$`)

// erasedUser is the sender of erased messages. No token may have it as its subject.
const erasedUser = "~erased"

type tokenCommand struct {
	Sub string        `help:"The user id of the token's subject." required:"" placeholder:"ID"`
	TTL time.Duration `name:"ttl" help:"How long the token is valid." default:"24h"`
	Cap []string      `help:"A capability; may be repeated. 'channel:<pattern>=<action>,...' with the actions send, history, subscribe, moderate, send_as, create, manage; 'member:<pattern>=<action>,...' with the same except send_as, for channels of which the subject is a member; 'session:<pattern>=<action>,...' with append, history, subscribe, send_as, manage; 'queue:<pattern>=<action>,...' with produce, consume; 'presence=<action>,...' with connect, watch, list; 'admin=<action>,...' with read, write; 'presence' and 'admin' alone have all actions." sep:"none" default:"channel:*=send,history,subscribe" placeholder:"CAP"`
}

// tokenJSON is the JSON form of a token.
type tokenJSON struct {
	Token     string `json:"token"`
	Subject   string `json:"sub"`
	ExpiresAt string `json:"expire_time"`
}

// Run creates a token and signs it with the server's secret.
func (c *tokenCommand) Run(s *session) error {
	if !subjectForm.MatchString(c.Sub) {
		return usagef("--sub: must be 1 to 128 printable ASCII characters without spaces")
	}
	if c.Sub == erasedUser {
		return usagef("--sub: %s is reserved for the sender of erased messages; servers refuse its tokens", erasedUser)
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

// secret returns $PARLEY_AUTH_HS256_SECRET or the content of the file that
// $PARLEY_AUTH_HS256_SECRET_FILE names, as a server does. If neither is set, it returns the secret
// that a local `parleyd dev` wrote.
func (s *session) secret() (string, error) {
	if key := s.getenv("PARLEY_AUTH_HS256_SECRET"); key != "" {
		return key, nil
	}
	path, hint := s.getenv("PARLEY_AUTH_HS256_SECRET_FILE"), ""
	if path == "" {
		path, hint = filepath.Join(s.flags.DataDir, access.SecretFile), " (has 'parleyd dev' run with this --data-dir?)"
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w%s", err, hint)
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(secret), "\n"), "\r")
	if key == "" {
		return "", fmt.Errorf("read the secret: %s is empty", path)
	}
	return key, nil
}

// capabilityKind describes the capabilities that begin with one name, such as `channel`.
type capabilityKind struct {
	actions []string
	// maxName is the maximum number of characters of a name that a pattern covers. It is 0 for a
	// capability without a pattern.
	maxName int
}

// capabilityKinds maps the name of a capability, before its pattern, to its kind.
var capabilityKinds = map[string]capabilityKind{
	"channel":  {[]string{"send", "history", "subscribe", "moderate", "send_as", "create", "manage"}, 128},
	"member":   {[]string{"send", "history", "subscribe", "moderate", "create", "manage"}, 128},
	"session":  {[]string{"append", "history", "subscribe", "send_as", "manage"}, 64},
	"queue":    {[]string{"produce", "consume"}, 64},
	"presence": {[]string{"connect", "watch", "list"}, 0},
	"admin":    {[]string{"read", "write"}, 0},
}

// patternForm is a name or a prefix of names: a `*` at the end matches any rest.
var patternForm = regexp.MustCompile(`^([A-Za-z0-9_-]+|[A-Za-z0-9_-]*\*)$`)

// parseCapabilities parses capabilities such as `channel:*=send,history`, `queue:jobs=consume`,
// `presence=watch`, `admin=read` and `admin`. A capability or an action that no server knows is an
// error: otherwise a token with it would seem to allow something.
func parseCapabilities(texts []string) (map[string][]string, error) {
	capabilities := make(map[string][]string)
	for _, text := range texts {
		name, actions, ok := strings.Cut(text, "=")
		prefix, pattern, two := strings.Cut(name, ":")
		kind, known := capabilityKinds[prefix]
		if !ok && known && kind.maxName == 0 {
			actions, ok = strings.Join(kind.actions, ","), true
		}
		if !ok || !known || two != (kind.maxName > 0) {
			return nil, usagef("--cap %q: must be channel:<pattern>=<action>,..., member:<pattern>=<action>,..., session:<pattern>=<action>,..., queue:<pattern>=<action>,..., presence=<action>,..., presence, admin=<action>,... or admin", text)
		}
		if two && (!patternForm.MatchString(pattern) || len(strings.TrimSuffix(pattern, "*")) > kind.maxName) {
			return nil, usagef("--cap %q: the pattern must be 1 to %d characters of A-Z a-z 0-9 _ -, optionally followed by *", text, kind.maxName)
		}
		for action := range strings.SplitSeq(actions, ",") {
			if action = strings.TrimSpace(action); !slices.Contains(kind.actions, action) {
				return nil, usagef("--cap %q: unknown action %q: must be one of %s", text, action, strings.Join(kind.actions, ", "))
			}
			capabilities[name] = append(capabilities[name], action)
		}
	}
	return capabilities, nil
}
