package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/admin"
)

type keyCommand struct {
	Create keyCreateCommand `cmd:"" help:"Create an API key and print it. It is not shown again."`
	List   keyListCommand   `cmd:"" help:"List the API keys, without their secrets."`
	Rotate keyRotateCommand `cmd:"" help:"Give an API key a new secret and print the key. The old secret stays valid for a time."`
	Revoke keyRevokeCommand `cmd:"" help:"Revoke an API key: every node refuses it, and ends its streams."`
}

type keyCreateCommand struct {
	Name string        `arg:"" help:"What the key is for."`
	Sub  string        `help:"The user id in whose name the key's holder calls." required:"" placeholder:"ID"`
	Cap  []string      `help:"A capability, as of 'parley token'; may be repeated." sep:"none" required:"" placeholder:"CAP"`
	TTL  time.Duration `name:"ttl" help:"How long the key is valid, at most 43920h." default:"8760h"`
}

// Run creates an API key.
func (c *keyCreateCommand) Run(s *session) error {
	capabilities, err := parseCapabilities(c.Cap)
	if err != nil {
		return err
	}
	n := admin.NewAPIKey{Name: c.Name, Subject: c.Sub, Life: c.TTL}
	for _, name := range slices.Sorted(maps.Keys(capabilities)) {
		n.Capabilities = append(n.Capabilities, &admin.Capability{Name: name, Actions: capabilities[name]})
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		key, credential, err := admin.New(client).CreateAPIKey(ctx, n)
		if err != nil {
			return explain("key create", err)
		}
		return printCredential(s, key, credential)
	})
}

type keyListCommand struct{}

// Run lists the API keys.
func (c *keyListCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		for key, err := range admin.New(client).APIKeys(ctx) {
			if err != nil {
				return explain("key list", err)
			}
			out := keyJSONOf(key)
			line := fmt.Sprintf("%s  %s  %s as %s  expires %s  last used %s  %s", out.KeyID, out.State, out.Name, out.Subject, out.ExpireTime,
				orNever(out.LastUseTime), out.grants())
			if err := s.printer().print(out, line); err != nil {
				return err
			}
		}
		return nil
	})
}

func orNever(at string) string {
	if at == "" {
		return "never"
	}
	return at
}

type keyRotateCommand struct {
	ID      string        `arg:"" help:"The id of the key."`
	Overlap time.Duration `help:"How long the old secret stays valid, at most 2160h; 0 ends it at once, on nodes that reach the store." default:"24h"`
}

// Run creates a new secret of an API key.
func (c *keyRotateCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		key, credential, err := admin.New(client).RotateAPIKey(ctx, c.ID, c.Overlap)
		if err != nil {
			return explain("key rotate", err)
		}
		return printCredential(s, key, credential)
	})
}

type keyRevokeCommand struct {
	ID     string `arg:"" help:"The id of the key."`
	Reason string `help:"Why, for the list of revocations." placeholder:"TEXT"`
}

// Run revokes an API key.
func (c *keyRevokeCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		r, err := admin.New(client).RevokeAPIKey(ctx, c.ID, c.Reason)
		if err != nil {
			return explain("key revoke", err)
		}
		return printRevocation(s, r)
	})
}

// keyJSON is the JSON form of an API key.
type keyJSON struct {
	KeyID               string              `json:"key_id"`
	Name                string              `json:"name"`
	Subject             string              `json:"subject"`
	Capabilities        map[string][]string `json:"cap"`
	State               string              `json:"state"`
	CreateTime          string              `json:"create_time"`
	CreatedBy           string              `json:"created_by"`
	ExpireTime          string              `json:"expire_time"`
	LastUseTime         string              `json:"last_use_time,omitempty"`
	OldSecretExpireTime string              `json:"old_secret_expire_time,omitempty"`
	// Credential is only there when the key was created or rotated.
	Credential string `json:"credential,omitempty"`
}

func keyJSONOf(k *admin.APIKey) keyJSON {
	at := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return ""
		}
		return t.AsTime().Format(time.RFC3339)
	}
	out := keyJSON{
		KeyID: k.GetKeyId(), Name: k.GetName(), Subject: k.GetSubject(), Capabilities: make(map[string][]string),
		State:      strings.ToLower(strings.TrimPrefix(k.GetState().String(), "API_KEY_STATE_")),
		CreateTime: at(k.GetCreateTime()), CreatedBy: k.GetCreatedBy(), ExpireTime: at(k.GetExpireTime()), LastUseTime: at(k.GetLastUseTime()),
		OldSecretExpireTime: at(k.GetOldSecretExpireTime()),
	}
	for _, c := range k.GetCapabilities() {
		out.Capabilities[c.GetName()] = c.GetActions()
	}
	return out
}

// grants returns the capabilities as they are written on the command line.
func (k *keyJSON) grants() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(k.Capabilities)) {
		all = append(all, name+"="+strings.Join(k.Capabilities[name], ","))
	}
	return strings.Join(all, " ")
}

// printCredential prints the text of an API key alone, so that a script can take it as it is.
func printCredential(s *session, k *admin.APIKey, credential string) error {
	out := keyJSONOf(k)
	out.Credential = credential
	return s.printer().print(out, credential)
}
