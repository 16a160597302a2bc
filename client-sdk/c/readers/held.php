<?php
/*
 * Says whether a hold is held, and until when: php held.php PAGE SESSION HOLD SLOT. Exit status 0 if it is held, 1 if
 * not, 2 if the page cannot be read. For Linux; names are those of ../tenure_page.h, docs/page.md has the contract.
 */
declare(strict_types=1);

final class TenurePage
{
    private const MAGIC = 'TENUREP1';
    private const VERSION = 1;
    private const SLOTS_MAX = 4095;
    private const SLOT_SIZE = 64;
    /** Readings of a slot that may differ from each other before it counts as not held. */
    private const READINGS_MAX = 8;
    /** /proc/uptime counts hundredths of a second, ns. */
    private const STEP_NS = 10_000_000;

    /** @var resource */
    private $file;
    private int $slots;

    public function __construct(string $path, string $session)
    {
        $file = @fopen($path, 'rb');
        if ($file === false) {
            throw new RuntimeException("$path cannot be opened: is this the user who registered?");
        }
        // A buffer would keep what was true once.
        stream_set_read_buffer($file, 0);
        $this->file = $file;
        $head = unpack('a8magic/Vversion/Vslots/a16session', (string) fread($file, self::SLOT_SIZE));
        $size = fstat($file)['size'];
        $isPage = $head !== false && $head['magic'] === self::MAGIC && $head['version'] === self::VERSION;
        if (!$isPage || $head['slots'] > self::SLOTS_MAX || $size < self::SLOT_SIZE * ($head['slots'] + 1)) {
            throw new RuntimeException("$path has not this layout: is the agent of another version?");
        }
        if (bin2hex($head['session']) !== str_replace('-', '', $session)) {
            throw new RuntimeException("$path is not of this session");
        }
        $this->slots = $head['slots'];
    }

    /** Until when the hold is valid, ns; 0 if it is not held at this instant. */
    public function heldUntil(int $slot, string $hold): int
    {
        // PHP maps no file. A read copies words whole, in no promised order, and may meet a write halfway: two that
        // agree met none. The clock comes last: a program that was stopped in between must not see an earlier now.
        $before = $this->validUntil($slot, $hold);
        for ($reading = 1; $reading < self::READINGS_MAX && $before > 0; $reading++) {
            $until = $this->validUntil($slot, $hold);
            if ($until === $before) {
                return self::latestNow() < $until ? $until : 0;
            }
            $before = $until;
        }
        return 0;
    }

    private function validUntil(int $slot, string $hold): int
    {
        if ($slot < 0 || $slot >= $this->slots || fseek($this->file, self::SLOT_SIZE * ($slot + 1)) !== 0) {
            return 0;
        }
        $read = @unpack('a16hold/Ptoken/Puntil', (string) fread($this->file, self::SLOT_SIZE));
        return $read !== false && bin2hex($read['hold']) === str_replace('-', '', $hold) ? $read['until'] : 0;
    }

    /**
     * The latest instant that it can be now, ns: PHP has no clock that goes on while the machine sleeps, and /proc/uptime
     * is rounded down. A clock that fails is the end of time: nothing is held.
     */
    private static function latestNow(): int
    {
        $uptime = (string) @file_get_contents('/proc/uptime');
        if (!preg_match('/^(\d+)\.(\d\d) /', $uptime, $part)) {
            return PHP_INT_MAX;
        }
        return ((int) "$part[1]$part[2]" + 1) * self::STEP_NS;
    }
}

try {
    if ($argc !== 5) {
        throw new RuntimeException('four arguments are needed');
    }
    [, $path, $session, $hold, $slot] = $argv;
    $until = (new TenurePage($path, $session))->heldUntil((int) $slot, $hold);
    echo $until > 0 ? "held until $until\n" : "not held\n";
    exit($until > 0 ? 0 : 1);
} catch (RuntimeException $error) {
    fwrite(STDERR, "{$error->getMessage()}; usage: held.php PAGE SESSION HOLD SLOT\n");
    exit(2);
}
