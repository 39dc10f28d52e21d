package messages

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

var sessions = []chaos.Mutant{
	{
		Name: "attempt-ignored", Heading: "sessions", Breaks: "a node takes text of an attempt after that of a later one",
		Edits: []chaos.Edit{{
			File: "server/internal/session/generation.go",
			Old:  "	case d.Attempt < g.attempt:\n", New: "	case d.Attempt < 0:\n",
		}},
		Steps: []chaos.Step{calm(30 * time.Second)},
		Shows: []chaos.Name{PrefixText, Superseded},
	},
	{
		Name: "text-after-close", Heading: "sessions", Breaks: "the text of a message is shown after its close",
		Edits: []chaos.Edit{{
			File: "server/internal/fanout/opentext.go",
			Old:  "	if t.texts.cancel == nil || e.Passed || e.Message.Status == message.StatusOpen {",
			New:  "	if t.texts.cancel == nil || e.Passed || e.Message.Status != message.StatusRecalled {",
		}},
		Steps: []chaos.Step{calm(15 * time.Second)},
		Shows: []chaos.Name{PrefixText},
	},
	{
		Name: "abandons-the-growing", Heading: "sessions", Breaks: "an open message is closed as abandoned however late its last delta was",
		Edits: []chaos.Edit{{
			File: "server/internal/session/closer.go",
			Old:  ", err == nil && !lost && ages[i] < c.cfg.Timeout:", New: ":",
		}, {
			File: "server/internal/session/closer.go",
			Old:  "	case ok && here.Age < c.cfg.Timeout, found && there.Age < c.cfg.Timeout, err", New: "	case ok && here.Age < 0, err",
		}},
		Steps: []chaos.Step{calm(45 * time.Second)},
		Shows: []chaos.Name{Abandoned},
	},
	{
		Name: "closes-the-closed", Heading: "sessions", Breaks: "a message that is not open can be closed",
		Edits: []chaos.Edit{{
			File: "server/internal/message/lanecheck.go",
			Old:  "	case target.Status != StatusOpen && it.Kind.Closes():\n", New: "	case target.Status == StatusEdited && it.Kind.Closes():\n",
		}},
		Steps: []chaos.Step{calm(30 * time.Second)},
		Shows: []chaos.Name{Changed},
	},
	{
		Name: "cancelled-text-lost", Heading: "sessions", Breaks: "a cancelled message loses what was streamed",
		Edits: []chaos.Edit{{
			File: "server/internal/session/open.go",
			Old:  "			r.Content = text.Text\n", New: "			r.Content = text.Text[:0]\n",
		}},
		Steps: []chaos.Step{calm(30 * time.Second)},
		Shows: []chaos.Name{WrongFinal},
	},
	{
		Name: "list-keeps-text", Heading: "sessions", Breaks: "edits, recalls and closes don't change the message in a session's list",
		Edits: []chaos.Edit{{
			File: "server/internal/store/redisstore/lua/list_append.lua",
			Old:  "      found = target ~= '0' and replace(target, value)\n", New: "      found = target ~= '0' and replace ~= nil\n",
		}},
		Steps: []chaos.Step{calm(10 * time.Second)},
		Shows: []chaos.Name{WrongList, DeletedText},
	},
	{
		Name: "texts-kept", Heading: "sessions", Breaks: "Redis keeps the streamed texts of messages that have ended",
		Edits: []chaos.Edit{{
			File: "server/internal/store/redisstore/router.go",
			Old:  "		if len(ended) == 0 {\n", New: "		if len(ended) >= 0 {\n",
		}, {
			File: "server/internal/session/mirror.go",
			Old:  "			ended, g.stale = append(ended, g), false\n", New: "			g.stale = false\n",
		}},
		Steps: []chaos.Step{calm(30 * time.Second)},
		Shows: []chaos.Name{DeletedText},
	},
}
