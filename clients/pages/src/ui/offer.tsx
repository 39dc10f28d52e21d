/** Asks whether the user of a token that the address bar held is to take the place of this one. */
export function Offer({ me, user, answer }: { me: string; user: string; answer: (take: boolean) => void }) {
  return (
    <div class="strip warn" role="alert" data-testid="offer">
      <span>
        The address holds a token of <b dir="auto">{user}</b>.
      </span>
      <button type="button" class="link" data-testid="take-offer" onClick={() => answer(true)}>
        Go on as {user}
      </button>
      <button type="button" class="link" data-testid="leave-offer" onClick={() => answer(false)}>
        Stay {me}
      </button>
    </div>
  );
}
