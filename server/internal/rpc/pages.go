package rpc

import (
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The largest pages of lists.
const (
	maxPage        = 1000
	maxChannelPage = 200
)

// limitPage lowers the page size of a list's request to the largest that the list has. A client that asks for more gets less
// and a token for the rest, as it may on any page.
func limitPage(request any) {
	switch r := request.(type) {
	case *parleyv1.ListMessagesRequest:
		r.PageSize = min(r.GetPageSize(), maxPage)
	case *parleyv1.ListMembersRequest:
		r.PageSize = min(r.GetPageSize(), maxPage)
	case *parleyv1.ListChannelsRequest:
		r.PageSize = min(r.GetPageSize(), maxChannelPage)
	case *parleyv1.ListTopicsRequest:
		r.PageSize = min(r.GetPageSize(), maxPage)
	case *parleyv1.ListPendingRequest:
		r.PageSize = min(r.GetPageSize(), maxPage)
	case *parleyv1.ListDeadLettersRequest:
		r.PageSize = min(r.GetPageSize(), maxPage)
	}
}
